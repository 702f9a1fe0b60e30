"""Terms register themselves with a decorator."""
from __future__ import annotations

from typing import Callable, Dict

import torch

REGISTRY: Dict[str, tuple[Callable[..., torch.Tensor], float]] = {}


def reward_term(weight: float, name: str | None = None):
    """Register a function as a reward term."""

    def decorator(fn):
        REGISTRY[name or fn.__name__] = (fn, weight)
        return fn

    return decorator


@reward_term(1.0)
def upright(state):
    return torch.cos(state["pole_angle"])


@reward_term(-0.01, name="spin")
def spin_penalty(state):
    return state["pole_vel"].square()


@reward_term(weight=-0.1)
def off_center(state):
    return state["cart_pos"].abs()


def compute_reward(state_dict):
    components = {name: w * fn(state_dict) for name, (fn, w) in REGISTRY.items()}
    return torch.sum(torch.stack(tuple(components.values())), dim=0), components
