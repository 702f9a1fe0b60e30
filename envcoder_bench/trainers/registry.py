"""The registry of trainers, by ``params.algo.name``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from envcoder_bench.core.errors import near_matches

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from envcoder_bench.trainers.base import Trainer

# a2c_continuous is rl_games' name for PPO with continuous actions
TRAINERS = {
    "a2c_continuous": "envcoder_bench.trainers.ppo.trainer:GroupedPPO",
    "flash_sac": "envcoder_bench.trainers.offpolicy.trainer:GroupedSAC",
    "flash_sac_small": "envcoder_bench.trainers.offpolicy.trainer:GroupedSAC",
}
SHORT = {"ppo": "a2c_continuous", "sac": "flash_sac", "sac_small": "flash_sac_small"}  # other names for --trainer
# files of cfg/train that a trainer reads in place of a task's own, which is one for PPO
CONFIGS = {"flash_sac": "FlashSAC", "flash_sac_small": "FlashSACSmall"}


def full_name(trainer: str) -> str:
    """Return the ``algo.name`` of a trainer. Raises ValueError with near matches for an unknown name."""
    name = SHORT.get(trainer, trainer)
    if name not in TRAINERS and ":" not in name:
        names = [*SHORT, *TRAINERS]
        raise ValueError(
            f"unknown trainer '{trainer}'{near_matches(trainer, names)}; there are {', '.join(names)}, or module:Class"
        )
    return name


def trainer_class(params: Mapping[str, Any]) -> type[Trainer]:
    """Return the trainer named by the ``params`` of an rl_games YAML.

    Args:
        params: ``algo.name`` is one of TRAINERS, or ``module:Class`` for a trainer from elsewhere.

    Raises:
        ValueError: the trainer is unknown.
    """
    from envcoder_bench.trainers.base import Trainer

    name = str(params["algo"].get("name"))
    module, _, attribute = TRAINERS.get(name, name).partition(":")
    try:
        trainer = getattr(import_module(module), attribute) if attribute else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"params.algo.name: {name} cannot be imported: {error}") from error
    if not (isinstance(trainer, type) and issubclass(trainer, Trainer)):
        raise ValueError(f"params.algo.name: {name} is not a trainer; use {', '.join(TRAINERS)} or module:Class")
    return trainer
