"""What the robots of frameworks share, as the stress test disturbs and watches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.sim.base import Robot


class TermRobot(Robot):
    """A robot in a scene of a framework.

    Args:
        world: the world of a task.
        model: MuJoCo's model of an environment; ``bodies`` are its ids of the bodies with ``body_names``.
    """

    def __init__(
        self, world: Any, model: Any, bodies: Sequence[int], body_names: Sequence[str], floating: bool
    ) -> None:
        self._world, self._model, self._device = world, model, world.device
        self.notes: list[str] = []
        self.floating, self.body_names = floating, list(body_names)
        self.body_masses = torch.from_numpy(model.body_mass[bodies]).float()
        moves = model.body_dofnum[model.body_weldid[bodies]] > 0
        self.base = 0 if floating else int(np.where(moves, model.body_mass[bodies], -1.0).argmax())
        self._errors: Mapping[str, Tensor] = {}

    def _set_sensors(self, joints: int, rays: int) -> None:
        base = {"linear_velocity": 3, "angular_velocity": 3, "orientation": 3} if self.floating else {}
        self.sensors = {"dof_pos": joints, "dof_vel": joints, **base, **({"measured_heights": rays} if rays else {})}

    def _indices(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self._device)

    def show_actions(self, actions: Tensor) -> None:
        manager = self._world.action_manager
        manager.action.copy_(actions[:, : manager.total_action_dim])

    def measure(self, errors: Mapping[str, Tensor], actions: Tensor) -> None:
        self._errors = errors
