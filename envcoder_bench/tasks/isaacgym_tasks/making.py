"""Construct a task of Isaac Gym code, with a proxy as its ``gym``."""

from __future__ import annotations

from typing import Any, Mapping

import torch

from envcoder_bench.tasks.isaacgym_tasks.draws import Draws
from envcoder_bench.tasks.isaacgym_tasks.gym_proxy import GymProxy, proxied
from envcoder_bench.tasks.isaacgym_tasks.importing import isaac_imports
from envcoder_bench.tasks.isaacgym_tasks.source import Source


def make_isaac(source: Source, cfg: Mapping[str, Any], num_envs: int, device: str) -> tuple[Any, GymProxy]:
    """Construct a task from its config, with a proxy as its gym. Raises ValueError."""
    config = {key: value for key, value in as_dict(cfg).items() if key != "name" or "name" in source.config}
    if "name" in config:
        config["name"] = source.config["name"]
    if config.get("task", {}).get("randomize"):
        raise ValueError(
            f"{source.address}: task.randomize is True, but IsaacGymEnvs' domain randomization would mix candidates:"
            " give task.task.randomize=false (docs/isaacgym.md says why)"
        )
    draws = Draws(num_envs, torch.device(device))
    with isaac_imports(*source.folders), proxied() as made, draws.call("make", None, True):
        task = source.make(config, num_envs, device)
    if not made:
        raise ValueError(f"{source.address} does not acquire a gym: it is not a task of Isaac Gym")
    return task, made[0]


def as_dict(cfg: Mapping[str, Any]) -> dict[str, Any]:
    from omegaconf import DictConfig, OmegaConf

    made: Any = OmegaConf.to_container(cfg, resolve=True) if isinstance(cfg, DictConfig) else cfg
    return dict(made)
