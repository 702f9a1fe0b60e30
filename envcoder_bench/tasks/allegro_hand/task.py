"""An Allegro Hand turns a cube to one goal after another: state, goals and fitness, with IsaacGymEnvs' names.

Source of names, formulas and constants: IsaacGymEnvs, tasks/allegro_hand.py and cfg/task/AllegroHand.yaml (NVIDIA,
BSD-3-Clause).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.sim_task import (
    DT,
    MAX_EPISODE_LENGTH,
    PROGRESS,
    SimTask,
    actions,
    body_state,
    contact_forces,
    read,
)
from envcoder_bench.torch_utils import scale

OBJECT_START = (0.0, -0.2, 0.56)  # m: 20 cm from the wrist along the fingers, 6 cm above it
GOAL = (0.0, -0.2, 0.56 - 0.04)  # m: below the start
UNTURNED = (0.0, 0.0, 0.0, 1.0)
OBJECT_SIZE = 0.065  # m
FINGERS = ("index", "middle", "ring", "thumb")
RAD, RAD_S = "rad", "rad/s"
JOINTS = "joint angles; fingers index, middle, ring, thumb, each from palm to tip"


def cube(part: slice) -> Callable[[SimTask], Tensor]:
    """Return a source: a part of the cube's state."""
    return lambda task: task.state["object_state"][:, part]


def body(name: str) -> Callable[[SimTask], Tensor]:
    """Return a source: the index of a body."""
    return lambda task: torch.tensor(task.body_names.index(name))


FIELDS = {
    "shadow_hand_dof_pos": Field((16,), RAD, JOINTS, "sim.dof_pos"),
    "shadow_hand_dof_vel": Field((16,), RAD_S, "joint velocities", "sim.dof_vel"),
    "dof_pos": Field((16,), RAD, "the same as shadow_hand_dof_pos", "sim.dof_pos"),
    "dof_vel": Field((16,), RAD_S, "the same as shadow_hand_dof_vel", "sim.dof_vel"),
    "dof_force_tensor": Field(
        (16,), "N m", "torques that the drives applied in the last physics step", "sim.dof_force"
    ),
    "cur_targets": Field(
        (16,),
        RAD,
        "position targets of the last step, and of the next one's past; joint angles under torques",
        lambda task: task.sim.dof_pos.clone(),
    ),
    "prev_targets": Field((16,), RAD, "the same as cur_targets", lambda task: task.state["cur_targets"]),
    "fingertip_state": Field(
        (4, 13),
        "m, -, m/s, rad/s",
        "fingertips index, middle, ring, thumb: position 3, quaternion xyzw 4, linear velocity 3, angular velocity 3; "
        "world frame",
        "sim.site_states",
    ),
    # a copy, because kernels read only contiguous rows
    "fingertip_pos": Field((4, 3), "m", "their positions", lambda task: task.sim.site_states[..., :3].clone()),
    "contact_forces": contact_forces(18, ", the object last"),
    "object_state": body_state("the cube"),
    "object_pose": Field((7,), "m, -", "its position and quaternion", cube(slice(0, 7))),
    "object_pos": Field((3,), "m", "its position", cube(slice(0, 3))),
    "object_rot": Field((4,), "-", "its quaternion, xyzw", cube(slice(3, 7))),
    "object_linvel": Field((3,), "m/s", "its linear velocity", cube(slice(7, 10))),
    "object_angvel": Field((3,), RAD_S, "its angular velocity", cube(slice(10, 13))),
    "object_init_state": Field(
        (13,), "as object_state", "the cube at rest above the fingers, unturned", (*OBJECT_START, *UNTURNED, *[0.0] * 6)
    ),
    "goal_pose": Field(
        (7,), "m, -", "goal: position and quaternion together; renewed when it is reached", (*GOAL, *UNTURNED)
    ),
    "goal_pos": Field(
        (3,),
        "m",
        "goal: where the cube is to be; 4 cm below its start unless compute_goal sets it",
        lambda task: task.state["goal_pose"][:, :3],
    ),
    "goal_rot": Field(
        (4,), "-", "goal: how the cube is to be turned; quaternion xyzw", lambda task: task.state["goal_pose"][:, 3:]
    ),
    "successes": Field((), "-", "goals reached since the episode began, the last step's included", 0.0),
    "consecutive_successes": Field(
        (), "-", "successes at the ends of this environment's episodes, averaged with av_factor for the newest", 0.0
    ),
    "actions": actions(16),
    "progress_buf": PROGRESS,
    "shadow_hand_dof_lower_limits": Field(None, RAD, "lower ends of the joints' ranges, (16,)", "sim.dof_limits_lower"),
    "shadow_hand_dof_upper_limits": Field(None, RAD, "upper ends of the joints' ranges, (16,)", "sim.dof_limits_upper"),
    "shadow_hand_dof_default_pos": Field(None, RAD, "joint angles of the flat hand: 0, (16,)", (0.0,) * 16),
    "shadow_hand_dof_default_vel": Field(None, RAD_S, "0, (16,)", (0.0,) * 16),
    "effort_limits": Field(None, "N m", "greatest torques of the drives, (16,)", "sim.effort_limits"),
    "palm_index": Field(None, "-", "the palm in contact_forces", body("allegro_mount")),
    "fingertip_indices": Field(
        None,
        "-",
        "the 4 links that end in fingertips, in contact_forces",
        lambda task: torch.tensor([task.body_names.index(f"{finger}_link_3") for finger in FINGERS]),
    ),
    "object_index": Field(None, "-", "the cube in contact_forces", body("object")),
    "object_size": Field(None, "m", "the cube's edge", OBJECT_SIZE),
    "max_episode_length": MAX_EPISODE_LENGTH,
    "dt": DT,
    "success_tolerance": Field(
        None, RAD, "a goal is reached where the cube is turned at most so far from it", "cfg.env.successTolerance"
    ),
    "fall_dist": Field(None, "m", "a cube this far from the goal's position has fallen", "cfg.env.fallDistance"),
    "act_moving_average": Field(
        None, "-", "share of the action in the targets of the task's own drives", "cfg.env.actionsMovingAverage"
    ),
    "shadow_hand_dof_speed_scale": Field(
        None, "rad/s", "for actions that are velocities of the targets", "cfg.env.dofSpeedScale"
    ),
    "dist_reward_scale": Field(None, "1/m", "of the human baseline's cost of distance", "cfg.env.distRewardScale"),
    "rot_reward_scale": Field(None, "rad", "of the human baseline's reward for alignment", "cfg.env.rotRewardScale"),
    "rot_eps": Field(None, "rad", "bounds the human baseline's reward for alignment", "cfg.env.rotEps"),
    "action_penalty_scale": Field(None, "-", "of the human baseline's cost of actions", "cfg.env.actionPenaltyScale"),
    "reach_goal_bonus": Field(None, "-", "the human baseline's reward for a goal reached", "cfg.env.reachGoalBonus"),
    "fall_penalty": Field(None, "-", "the human baseline's reward for a fall", "cfg.env.fallPenalty"),
    "reset_position_noise": Field(None, "m", "of the cube where episodes begin", "cfg.env.resetPositionNoise"),
    "reset_dof_pos_noise": Field(
        None, "-", "share of the joints' ranges in which they begin", "cfg.env.resetDofPosRandomInterval"
    ),
    "reset_dof_vel_noise": Field(
        None, "rad/s", "of the joints where episodes begin", "cfg.env.resetDofVelRandomInterval"
    ),
    "vel_obs_scale": Field(None, "s/rad", "observation scale of joint and angular velocities", 0.2),
    "force_torque_obs_scale": Field(None, "1/(N m)", "observation scale of joint torques", 10.0),
    "av_factor": Field(
        None,
        "-",
        "weight of the newest episode in consecutive_successes",
        lambda task: torch.tensor(float(read(task.cfg, "env.averFactor", 0.1))),
    ),
}


ONLY = {  # keys of which only one of IsaacGymEnvs' values is supported: that value, and the alternative
    "env.objectType": ("block", "the object is always the cube"),
    "env.observationType": ("full_state", "user_functions/AllegroHand/002_no_velocity.py observes full_no_vel"),
    "env.asymmetric_observations": (
        False,
        "compute_critic_observation is what the value function sees, with train.params.network.separate=true",
    ),
    "env.useRelativeControl": (False, "see user_functions/AllegroHand/004_relative_targets.py"),
    "env.maxConsecutiveSuccesses": (0, "episodes go on until the cube falls or time is up"),
    "env.forceScale": (0.0, "this task has no random pushes"),
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

    def ends(self) -> dict[str, Tensor]:
        away = torch.norm(self.state["object_pos"] - self.state["goal_pos"], p=2, dim=-1)
        return {"the cube has fallen": away >= self.constants["fall_dist"].item()}

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return self._reached(state).float()

    def _reached(self, state: Mapping[str, Tensor]) -> Tensor:
        """Return where the goal is reached, ``(n,)`` bool. Products and sums round the same everywhere."""
        x, y, z, w = (state["object_rot"] * state["goal_rot"]).unbind(dim=1)
        cosine = x + y + z + w
        return cosine * cosine >= self._near
