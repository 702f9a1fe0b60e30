"""Nested frozen dataclasses with replace() for a variant."""
from dataclasses import dataclass, replace, fields
from typing import ClassVar, Final, Optional

import torch

EPS: Final[float] = 1e-6


@dataclass(frozen=True)
class Weights:
    progress: float = 1.0
    alive: float = 0.5
    energy: float = -0.05

    names: ClassVar[tuple] = ("progress", "alive", "energy")


@dataclass
class Config:
    weights: Weights = Weights()
    clip: Optional[float] = None


BASE = Config()
FAST = replace(BASE, weights=replace(BASE.weights, progress=2.0), clip=10.0)


def compute_reward(state_dict):
    cfg = FAST
    raw = {
        "progress": state_dict["potentials"] - state_dict["prev_potentials"],
        "alive": (state_dict["root_states"][:, 2] > state_dict["termination_height"]).float(),
        "energy": torch.abs(state_dict["actions"] * state_dict["dof_vel"]).sum(-1),
    }
    parts = {f.name: getattr(cfg.weights, f.name) * raw[f.name] for f in fields(cfg.weights)}
    reward = sum(parts.values())
    if cfg.clip is not None:
        reward = reward.clamp(-cfg.clip, cfg.clip)
    return reward / (1.0 + EPS), parts
