"""What evaluations saw in the course of training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Tuple


@dataclass(frozen=True)
class Point:
    """One evaluation of one candidate and seed. Numbers that are not known are NaN.

    Attributes:
        iteration, env_steps: when; ``env_steps`` are those of this candidate and seed.
        fitness, episode_length: means over the episodes of the unshaped evaluation.
        components: mean, min and max of each reward component in training since the point before.
    """

    candidate: str
    seed: int
    iteration: int
    env_steps: int
    fitness: float
    episode_length: float
    components: Dict[str, Tuple[float, float, float]] = field(default_factory=dict)
