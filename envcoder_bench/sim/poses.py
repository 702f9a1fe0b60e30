"""Poses of simulations, for pictures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class PoseSource:
    """Live poses of a batch of simulations of one model.

    Attributes:
        model: the model, an MjModel.
        source: ``(num_envs, nq)`` poses, which the simulator refreshes in place, or a function that returns them.
        mocap: live ``(num_envs, nmocap, 3)`` positions and ``(num_envs, nmocap, 4)`` quaternions; None without them.
    """

    model: Any
    source: np.ndarray | Callable[[], np.ndarray]
    mocap: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def qpos(self) -> np.ndarray:
        """The present poses."""
        return self.source() if callable(self.source) else self.source
