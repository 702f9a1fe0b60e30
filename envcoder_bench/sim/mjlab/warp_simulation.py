"""mjlab's simulation on MuJoCo Warp, which counts overflows instead of printing them."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import warp as wp
from mjlab.sim.sim import Simulation
from torch import Tensor

from mujoco_batches.physics.warp_device import DROPPING


class WarpSimulation(Simulation):
    """mjlab's ``Simulation``, whose kernels print nothing."""

    def create_graph(self) -> None:
        self.wp_model.opt.warn_overflow = 0  # see put_model of mujoco_batches; mjlab calls this before any step
        super().create_graph()

    def take_overflows(self) -> Tensor:
        """Return where contacts or constraints were dropped since the last call: ``(num_envs,)`` bool."""
        bits: Any = wp.to_torch(self.wp_data.overflow)
        dropped = (bits & DROPPING) != 0
        bits.zero_()
        return dropped
