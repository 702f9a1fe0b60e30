"""An Allegro Hand turns a cube to one goal after another: state, goals and fitness, with IsaacGymEnvs' names.

Source of names, formulas and constants: IsaacGymEnvs, tasks/allegro_hand.py and cfg/task/AllegroHand.yaml (NVIDIA,
BSD-3-Clause).
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.allegro_hand.fields import FIELDS, FINGERS
from envcoder_bench.tasks.sim_task import SimTask
from envcoder_bench.torch_utils import scale

ONLY = {  # keys of which only one of IsaacGymEnvs' values is supported: that value, and the alternative
    "env.objectType": ("block", "the object is always the cube"),
    "env.observationType": ("full_state", "user_functions/AllegroHand/002_no_velocity.py observes full_no_vel"),
    "env.asymmetric_observations": (False, "policy and value function see the same observation"),
    "env.useRelativeControl": (False, "see user_functions/AllegroHand/004_relative_targets.py"),
    "env.maxConsecutiveSuccesses": (0, "episodes go on until the cube falls or time is up"),
    "env.forceScale": (0.0, "there are no random pushes"),
    "env.resetTime": (-1.0, "set env.episodeLength, control steps"),
}


class AllegroHand(SimTask):
    """Sixteen joints with position drives, and a cube that begins above the fingers.

    A goal is reached on a step after which the angle between cube and goal is at most the tolerance, wherever the cube
    is, as in IsaacGymEnvs; the environment then draws another goal, and the episode continues.
    """

    name = "AllegroHand"
    model = "allegro_hand.xml"
    dof_names = tuple(f"{finger}_joint_{k}" for finger in FINGERS for k in range(4))
    body_names = ("allegro_mount", *(f"{finger}_link_{k}" for finger in FINGERS for k in range(4)), "object")
    site_names = tuple(f"{finger}_tip" for finger in FINGERS)
    object_keys = ("object_state",)
    kept_keys = ("fingertip_pos", "cur_targets", "successes", "consecutive_successes")
    config_keys = ("env.episodeLength", "env.averFactor")
    ignored_keys = (
        "env.enableDebugVis",
        "env.aggregateMode",
        "env.stiffnessScale",  # IsaacGymEnvs reads neither these two
        "env.forceLimitScale",
        "env.startPositionNoise",  # nor these five
        "env.startRotationNoise",
        "env.resetRotationNoise",
        "env.startObjectPoseDY",
        "env.startObjectPoseDZ",
        "env.forceProbRange",
        "env.forceDecay",
        "env.forceDecayInterval",
        "env.printNumSuccesses",
        *ONLY,
    )
    only = ONLY
    goal_keys = ("goal_pos", "goal_rot")
    default_action_dim = 16
    drive_formula = (
        "joint position target = act_moving_average * scale(action, lower, upper) + (1 - act_moving_average) *"
        " prev_targets, where lower and upper are shadow_hand_dof_lower_limits and shadow_hand_dof_upper_limits, and"
        " scale maps -1 to 1 to them; clamped to them"
    )
    fitness_meaning = (
        "consecutive successes: goals that the cube is turned to, within 0.1 rad, in an episode of 600 steps (20 s) "
        "before it falls; 0 and more"
    )
    fitness_bounds = (0.0, math.inf)
    fitness_reduction = "sum"  # each goal counts 1
    fields = FIELDS
    new_goal: Tensor

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        flat = self.constants["shadow_hand_dof_default_pos"]
        self.default_state = {
            "object_state": self.state["object_init_state"],
            "dof_pos": self.per_env(torch.clamp(flat, sim.dof_limits_lower, sim.dof_limits_upper).tolist()),
            "dof_vel": torch.zeros_like(sim.dof_vel),
        }
        self.new_goal = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self._lower, self._upper = (x.to(self.device) for x in (sim.dof_limits_lower, sim.dof_limits_upper))
        self._average = self.constants["act_moving_average"].item()
        self._newest = self.constants["av_factor"].item()
        # two unit quaternions whose rotations differ by an angle have the product cos(angle / 2), or minus that
        self._near = math.cos(0.5 * self.constants["success_tolerance"].item()) ** 2
        self._effort = torch.zeros(self.num_envs, 1, dtype=torch.bool, device=self.device)

    def set_drive_mode(self, effort: Tensor) -> None:
        super().set_drive_mode(effort)
        self._effort.copy_(effort.unsqueeze(1))

    def default_dof_target(self, action: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Map -1 to 1 to the joints' ranges, averaged with the previous target."""
        lower, upper = self._lower, self._upper
        target = self._average * scale(action, lower, upper) + (1.0 - self._average) * state["prev_targets"]
        return torch.clamp(target, lower, upper)

    def step(self, command: Tensor) -> None:
        super().step(command)
        self.state["fingertip_pos"].copy_(self.sim.site_states[..., :3])
        self.state["cur_targets"].copy_(torch.where(self._effort, self.sim.dof_pos, command))
        reached = self._reached(self.state) & ~self.unstable
        self.new_goal.copy_(reached)
        self.state["successes"].add_(reached)

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        super().reset(mask, initial, goal)
        if not initial:
            return
        self.state["fingertip_pos"].copy_(self.sim.site_states[..., :3])
        targets, successes = self.state["cur_targets"], self.state["successes"]
        average = self.state["consecutive_successes"]
        newest = self._newest * successes + (1.0 - self._newest) * average
        average.copy_(torch.where(mask, newest, average))
        successes.masked_fill_(mask, 0.0)
        targets.copy_(torch.where(mask.unsqueeze(1), self.sim.dof_pos, targets))

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return self._reached(state).float()

    def _reached(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return where the goal is reached, ``(n,)`` bool. Products and sums round the same everywhere."""
        x, y, z, w = (state["object_rot"] * state["goal_rot"]).unbind(dim=1)
        cosine = x + y + z + w
        return cosine * cosine >= self._near
