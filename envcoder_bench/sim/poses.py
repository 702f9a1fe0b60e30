"""Poses of simulations, for pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class PoseSource:
    """Live poses of a batch of simulations of one model.

    Attributes:
        model: the model, an MjModel.
        qpos: ``(num_envs, nq)`` float64, refreshed in place by the simulator.
        mocap: live ``(num_envs, nmocap, 3)`` positions and ``(num_envs, nmocap, 4)`` quaternions; None without them.
    """

    model: Any
    qpos: np.ndarray
    mocap: tuple[np.ndarray, np.ndarray] | None = None
