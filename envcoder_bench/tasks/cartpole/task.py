"""A cart on a rail balances a pole: state and fitness, with IsaacGymEnvs' names. CartpoleSwingup shares the state."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.sim_task import DT, MAX_EPISODE_LENGTH, PROGRESS, SimTask, actions

UPRIGHT = math.radians(12.0)
FIELDS = {
    "dof_pos": Field((2,), "m, rad", "cart's position and pole's angle (0 is upright)", "sim.dof_pos"),
    "dof_vel": Field((2,), "m/s, rad/s", "their velocities", "sim.dof_vel"),
    "cart_pos": Field((), "m", "cart's position on the rail", lambda task: task.sim.dof_pos[:, 0]),
    "cart_vel": Field((), "m/s", "cart's velocity", lambda task: task.sim.dof_vel[:, 0]),
    "pole_angle": Field(
        (), "rad", "pole's angle from upright; counts whole turns", lambda task: task.sim.dof_pos[:, 1]
    ),
    "pole_vel": Field((), "rad/s", "pole's angular velocity", lambda task: task.sim.dof_vel[:, 1]),
    "actions": actions(1),
    "progress_buf": PROGRESS,
    "reset_dist": Field(None, "m", "the cart's range is from minus to plus this", "cfg.env.resetDist"),
    "max_push_effort": Field(None, "N", "largest force on the cart that the baselines use", "cfg.env.maxEffort"),
    "max_episode_length": MAX_EPISODE_LENGTH,
    "dt": DT,
}


class Cartpole(SimTask):
    """A driven joint, the cart's, and a passive joint, the pole's; without a goal."""

    name = "Cartpole"
    model = "cartpole.xml"
    dof_names = ("slider_to_cart", "cart_to_pole")
    body_names = ("slider", "cart", "pole")
    default_action_dim = None  # the pole must stay passive: candidates and baselines command effort
    fitness_meaning = (
        "fraction of the full episode with the pole within 12 degrees of upright and the cart in its range; 0 to 1"
    )
    fitness_bounds = (0.0, 1.0)
    fields = FIELDS

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        self.reset_dist = self.constants["reset_dist"].item()
        self.default_state = {"dof_pos": torch.zeros_like(sim.dof_pos), "dof_vel": torch.zeros_like(sim.dof_vel)}

    def ends(self) -> dict[str, Tensor]:
        fallen = torch.abs(self.state["pole_angle"]) > math.pi / 2
        return {"cart_pos at its range": self._off_range(), "pole below the horizontal": fallen}

    def _off_range(self) -> Tensor:
        return torch.abs(self.state["cart_pos"]) > self.reset_dist

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        # the cosine, so that a pole that is upright again after a whole turn counts as upright
        upright = torch.cos(state["pole_angle"]) >= math.cos(UPRIGHT)
        return (upright & (torch.abs(state["cart_pos"]) <= self.reset_dist)).float()
