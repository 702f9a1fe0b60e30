"""The registry of trainers, by ``params.algo.name``."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Mapping

from envcoder_bench.trainers.base import Trainer

# the name is rl_games' name for PPO with continuous actions
TRAINERS = {"a2c_continuous": "envcoder_bench.trainers.ppo.trainer:GroupedPPO"}


def trainer_class(params: Mapping[str, Any]) -> type[Trainer]:
    """Return the trainer named by the ``params`` of an rl_games YAML.

    Args:
        params: ``algo.name`` is one of TRAINERS, or ``module:Class`` for a trainer from elsewhere.

    Raises:
        ValueError: there is no such trainer.
    """
    name = str(params["algo"].get("name"))
    module, _, attribute = TRAINERS.get(name, name).partition(":")
    try:
        found = getattr(import_module(module), attribute) if attribute else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"params.algo.name: {name} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Trainer)):
        raise ValueError(f"params.algo.name: {name} is not a trainer; use {', '.join(TRAINERS)} or module:Class")
    return found
