"""Construct a task of Isaac Gym code, with a proxy as its ``gym``."""

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from envcoder_bench.tasks.isaacgym_tasks.draws import Draws
from envcoder_bench.tasks.isaacgym_tasks.gym_proxy import GymProxy, proxied
from envcoder_bench.tasks.isaacgym_tasks.importing import isaac_imports
from envcoder_bench.tasks.isaacgym_tasks.source import Source

METHOD, PARAMS = "apply_randomizations", "randomization_params"


def make_isaac(source: Source, cfg: Mapping[str, Any], num_envs: int, device: str) -> tuple[Any, GymProxy]:
    """Construct a task from its config, with a proxy as its gym. Raises ValueError."""
    config = {key: value for key, value in as_dict(cfg).items() if key != "name" or "name" in source.config}
    if "name" in config:
        config["name"] = source.config["name"]
    draws, switched_off = Draws(num_envs, torch.device(device)), contextlib.nullcontext()
    if randomizes(config):
        switched_off = _without_randomization(source, config)
    with isaac_imports(*source.folders), proxied() as proxies, draws.call("make", None, True), switched_off:
        task = source.make(config, num_envs, device)
    if not proxies:
        raise ValueError(f"{source.address} does not acquire a gym: it is not a task of Isaac Gym")
    if randomizes(config):
        setattr(task, METHOD, _nothing)
        if not hasattr(task, PARAMS):
            setattr(task, PARAMS, config["task"].get(PARAMS))
    return task, proxies[0]


def randomizes(config: Mapping[str, Any]) -> bool:
    """Return whether a task's config enables IsaacGymEnvs' domain randomization."""
    section = config.get("task")
    return isinstance(section, Mapping) and bool(section.get("randomize"))


@contextlib.contextmanager
def _without_randomization(source: Source, config: Mapping[str, Any]) -> Iterator[None]:
    """Disable the task's own randomization inside the block, because its draws would mix candidates.

    Its argument is made an attribute of the class, because HumanoidAMP reads it and does not set it.

    Raises:
        ValueError: the class does not randomize as IsaacGymEnvs' VecTask does.
    """
    owners = [cls for cls in source.task_class.__mro__ if METHOD in vars(cls)]
    taken = list(inspect.signature(getattr(source.task_class, METHOD)).parameters)[1:] if owners else []
    if len(owners) != 1 or taken != ["dr_params"]:
        names = ", ".join(cls.__name__ for cls in owners) or "no class"
        raise ValueError(
            f"{source.address}: task.randomize is True, which needs the method {METHOD}(dr_params) of IsaacGymEnvs'"
            f" VecTask, and here {names} defines {METHOD}({', '.join(taken)}): give task.task.randomize=false"
        )
    owner, method = owners[0], vars(owners[0])[METHOD]
    setattr(owner, METHOD, _nothing)
    missing = not hasattr(source.task_class, PARAMS)
    if missing:
        setattr(owner, PARAMS, config["task"].get(PARAMS))
    try:
        yield
    finally:
        setattr(owner, METHOD, method)
        if missing:
            delattr(owner, PARAMS)


def _nothing(*_: Any) -> None:
    """Replace ``apply_randomizations``: ``Randomizer`` does its work."""


def as_dict(cfg: Mapping[str, Any]) -> dict[str, Any]:
    from omegaconf import DictConfig, OmegaConf

    content: Any = OmegaConf.to_container(cfg, resolve=True) if isinstance(cfg, DictConfig) else cfg
    return dict(content)
