"""An Allegro Hand turns a cube to one goal after another: state, goals and fitness, with IsaacGymEnvs' names.

Source of names, formulas and constants: IsaacGymEnvs, tasks/allegro_hand.py and cfg/task/AllegroHand.yaml (NVIDIA,
BSD-3-Clause).
"""

from __future__ import annotations

import math
from typing import Any, Mapping

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.allegro_hand.fields import FIELDS, FINGERS
from envcoder_bench.tasks.sim_task import SimTask, read
from envcoder_bench.torch_utils import scale

OBJECT_START = (0.0, -0.2, 0.56)  # m: 20 cm from the wrist along the fingers, 6 cm above it
GOAL_BELOW = 0.04  # m: how far the goal is below the start
OBJECT_SIZE = 0.065  # m
SCALES = {  # key of state_dict: key of IsaacGymEnvs' YAML
    "success_tolerance": "env.successTolerance",
    "fall_dist": "env.fallDistance",
    "act_moving_average": "env.actionsMovingAverage",
    "shadow_hand_dof_speed_scale": "env.dofSpeedScale",
    "dist_reward_scale": "env.distRewardScale",
    "rot_reward_scale": "env.rotRewardScale",
    "rot_eps": "env.rotEps",
    "action_penalty_scale": "env.actionPenaltyScale",
    "reach_goal_bonus": "env.reachGoalBonus",
    "fall_penalty": "env.fallPenalty",
    "reset_position_noise": "env.resetPositionNoise",
    "reset_dof_pos_noise": "env.resetDofPosRandomInterval",
    "reset_dof_vel_noise": "env.resetDofVelRandomInterval",
}
ONLY = {  # settings that IsaacGymEnvs has more of: the one value that means anything here, and what to do instead
    "env.objectType": ("block", "the object is always the cube"),
    "env.observationType": ("full_state", "user_functions/AllegroHand/002_no_velocity.py observes full_no_vel"),
    "env.asymmetric_observations": (False, "policy and value function see the same observation"),
    "env.useRelativeControl": (False, "user_functions/AllegroHand/004_relative_targets.py has it"),
    "env.maxConsecutiveSuccesses": (0, "episodes go on until the cube falls or time is up"),
    "env.forceScale": (0.0, "there are no random pushes"),
    "env.resetTime": (-1.0, "set env.episodeLength, control steps"),
}
OBSERVATION_SCALES = {"vel_obs_scale": 0.2, "force_torque_obs_scale": 10.0}


class AllegroHand(SimTask):
    """Sixteen joints behind position drives, and a cube that begins above the fingers.

    A goal is reached on a step after which the cube is turned less than the tolerance from it, wherever the cube is, as
    in IsaacGymEnvs; the environment then draws another, and the episode goes on.
    """

    name = "AllegroHand"
    model = "allegro_hand.xml"
    dof_names = tuple(f"{finger}_joint_{k}" for finger in FINGERS for k in range(4))
    body_names = ("allegro_mount", *(f"{finger}_link_{k}" for finger in FINGERS for k in range(4)), "object")
    site_names = tuple(f"{finger}_tip" for finger in FINGERS)
    object_keys = ("object_state",)
    kept_keys = ("fingertip_pos", "cur_targets", "successes", "consecutive_successes")
    config_keys = ("env.episodeLength", "env.averFactor", *SCALES.values())
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
    fitness_meaning = (
        "consecutive successes: goals that the cube is turned to, within 0.1 rad, in an episode of 600 steps (20 s) "
        "before it falls; 0 and more"
    )
    fitness_reduction = "sum"  # each goal counts 1
    fields = FIELDS
    new_goal: Tensor

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        self.max_episode_length = int(read(cfg, "env.episodeLength"))
        cube = self.state["object_state"]
        unturned = (0.0, 0.0, 0.0, 1.0)
        x, y, z = OBJECT_START
        goal = self._per_env([x, y, z - GOAL_BELOW, *unturned])
        targets = sim.dof_pos.clone()
        self.state.update(
            {
                "shadow_hand_dof_pos": sim.dof_pos,
                "shadow_hand_dof_vel": sim.dof_vel,
                "dof_pos": sim.dof_pos,
                "dof_vel": sim.dof_vel,
                "dof_force_tensor": sim.dof_force,
                "cur_targets": targets,
                "prev_targets": targets,
                "fingertip_state": sim.site_states,
                # a copy, because kernels read only what lies in a row
                "fingertip_pos": sim.site_states[..., :3].clone(),
                "contact_forces": sim.contact_forces,
                "object_pose": cube[:, :7],
                "object_pos": cube[:, :3],
                "object_rot": cube[:, 3:7],
                "object_linvel": cube[:, 7:10],
                "object_angvel": cube[:, 10:],
                "object_init_state": self._per_env([*OBJECT_START, *unturned, *[0.0] * 6]),
                "goal_pose": goal,
                "goal_pos": goal[:, :3],
                "goal_rot": goal[:, 3:],
                "successes": torch.zeros(self.num_envs, device=self.device),
                "consecutive_successes": torch.zeros(self.num_envs, device=self.device),
            }
        )
        flat = torch.zeros(self.num_dofs)
        self.default_state = {
            "object_state": self.state["object_init_state"],
            "dof_pos": self._per_env(torch.clamp(flat, sim.dof_limits_lower, sim.dof_limits_upper).tolist()),
            "dof_vel": torch.zeros_like(sim.dof_vel),
        }
        self.constants = {
            "shadow_hand_dof_lower_limits": sim.dof_limits_lower,
            "shadow_hand_dof_upper_limits": sim.dof_limits_upper,
            "shadow_hand_dof_default_pos": flat,
            "shadow_hand_dof_default_vel": flat.clone(),
            "effort_limits": sim.effort_limits,
            "palm_index": torch.tensor(self.body_names.index("allegro_mount")),
            "fingertip_indices": torch.tensor([self.body_names.index(f"{finger}_link_3") for finger in FINGERS]),
            "object_index": torch.tensor(self.body_names.index("object")),
            "object_size": torch.tensor(OBJECT_SIZE),
            "max_episode_length": torch.tensor(self.max_episode_length),
            "dt": torch.tensor(self.dt),
            **{key: torch.tensor(float(read(cfg, source))) for key, source in SCALES.items()},
            **{key: torch.tensor(number) for key, number in OBSERVATION_SCALES.items()},
            "av_factor": torch.tensor(float(read(cfg, "env.averFactor", 0.1))),
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
        """-1 and 1 are the ends of a joint's range; averaged with the target before."""
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
        """Where the cube is turned as its goal says: ``(n,)`` bool. Products and sums round the same everywhere."""
        x, y, z, w = (state["object_rot"] * state["goal_rot"]).unbind(dim=1)
        cosine = x + y + z + w
        return cosine * cosine >= self._near
