"""A Franka Panda stacks cube A on cube B: state and fitness, with IsaacGymEnvs' names.

Source of names, formulas and constants: IsaacGymEnvs, tasks/franka_cube_stack.py and cfg/task/FrankaCubeStack.yaml
(NVIDIA, BSD-3-Clause).
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
)

TABLE_HEIGHT = 1.025  # m, the table's surface: z of the plane in the model
CUBE_A, CUBE_B = 0.05, 0.07  # m, edges
DEFAULT_DOF_POS = (0.0, 0.1963, 0.0, -2.6180, 0.0, 2.9416, 0.7854, 0.035, 0.035)  # rad; fingers m
# control gains of IsaacGymEnvs' operational space controller, per direction and per joint of the arm
KP, KP_NULL = 150.0, 10.0
CMD_LIMIT = (0.1, 0.1, 0.1, 0.5, 0.5, 0.5)  # m, rad
GRIPPER_STIFFNESS = 5000.0  # N/m, of IsaacGymEnvs' drives of the fingers


def site(index: int, part: slice) -> Callable[[SimTask], Tensor]:
    """Return a source: a part of a site's state."""
    return lambda task: task.sim.site_states[:, index, part]


def body(name: str) -> Callable[[SimTask], Tensor]:
    """Return a source: the index of a body."""
    return lambda task: torch.tensor(task.body_names.index(name))


FIELDS = {
    "dof_pos": Field(
        (9,), "rad, m", "joint positions: 7 of the arm, left and right finger (0 closed, 0.04 open)", "sim.dof_pos"
    ),
    "dof_vel": Field((9,), "rad/s, m/s", "joint velocities", "sim.dof_vel"),
    "q": Field((9,), "rad, m", "the same as dof_pos", "sim.dof_pos"),
    "q_gripper": Field((2,), "m", "positions of the fingers", lambda task: task.sim.dof_pos[:, -2:]),
    "eef_pos": Field((3,), "m", "grip site, the point between the fingertips; world frame", site(0, slice(0, 3))),
    "eef_quat": Field(
        (4,), "-", "orientation of the hand, xyzw; its z axis points along the fingers", site(0, slice(3, 7))
    ),
    "eef_vel": Field(
        (6,),
        "m/s, rad/s",
        "velocity of the grip site 3 and angular velocity of the hand 3; world frame",
        site(0, slice(7, 13)),
    ),
    "eef_lf_pos": Field((3,), "m", "left fingertip; world frame", site(1, slice(0, 3))),
    "eef_rf_pos": Field((3,), "m", "right fingertip; world frame", site(2, slice(0, 3))),
    "cubeA_state": body_state("cube A, to be stacked"),
    "cubeB_state": Field((13,), "m, -, m/s, rad/s", "cube B, to be stacked on; as cubeA_state"),
    "cubeA_pos": Field((3,), "m", "centre of cube A; world frame", lambda task: task.state["cubeA_state"][:, :3]),
    "cubeA_quat": Field((4,), "-", "orientation of cube A, xyzw", lambda task: task.state["cubeA_state"][:, 3:7]),
    "cubeB_pos": Field((3,), "m", "centre of cube B; world frame", lambda task: task.state["cubeB_state"][:, :3]),
    "cubeB_quat": Field((4,), "-", "orientation of cube B, xyzw", lambda task: task.state["cubeB_state"][:, 3:7]),
    "cubeA_size": Field((), "m", "edge of cube A, 0.05", CUBE_A),
    "cubeB_size": Field((), "m", "edge of cube B, 0.07", CUBE_B),
    "cubeA_pos_relative": Field((3,), "m", "from the grip site to the centre of cube A; world frame", 0.0),
    "cubeA_to_cubeB_pos": Field((3,), "m", "from the centre of cube A to that of cube B; world frame", 0.0),
    # the arm's part, copied, because kernels read only contiguous rows
    "jacobian": Field(
        (6, 7),
        "m/rad, -",
        "linear and angular velocity of the grip site for each arm joint's velocity",
        lambda task: task.sim.jacobian[:, :, :7].clone(),
    ),
    "mass_matrix": Field(
        (7, 7),
        "kg m^2",
        "joint-space inertia of the arm, armature included",
        lambda task: task.sim.mass_matrix[:, :7, :7].clone(),
    ),
    "dof_force_tensor": Field(
        (9,), "N m, N", "efforts that the motors applied in the last physics step", "sim.dof_force"
    ),
    "contact_forces": contact_forces(11),
    "stand_steps": Field((), "control steps", "for how long the stack has stood without a break, up to now", 0.0),
    "stacked": Field((), "-", "1 from the step on which the stack has stood for 5 steps, until the episode ends", 0.0),
    "just_stacked": Field((), "-", "1 on the first step on which stacked is 1, else 0", 0.0),
    "actions": actions(7),
    "progress_buf": PROGRESS,
    "table_height": Field(None, "m", "z of the table's surface", TABLE_HEIGHT),
    "franka_default_dof_pos": Field(None, "rad, m", "joint positions of the default pose, (9,)", DEFAULT_DOF_POS),
    "franka_dof_lower_limits": Field(None, "rad, m", "lower ends of the joints' ranges, (9,)", "sim.dof_limits_lower"),
    "franka_dof_upper_limits": Field(None, "rad, m", "upper ends of the joints' ranges, (9,)", "sim.dof_limits_upper"),
    "franka_effort_limits": Field(None, "N m, N", "greatest efforts of the motors, (9,)", "sim.effort_limits"),
    "kp": Field(None, "1/s^2", "stiffness of the baselines' operational space control, (6,)", (KP,) * 6),
    "kd": Field(None, "1/s", "damping of the baselines' control, (6,)", (2.0 * math.sqrt(KP),) * 6),
    "kp_null": Field(
        None, "1/s^2", "stiffness of the baselines' null space control, to the default pose, (7,)", (KP_NULL,) * 7
    ),
    "kd_null": Field(
        None, "1/s", "damping of the baselines' null space control, (7,)", (2.0 * math.sqrt(KP_NULL),) * 7
    ),
    "cmd_limit": Field(
        None, "m, rad", "how far from the hand an action of 1 puts the baselines' target, (6,)", CMD_LIMIT
    ),
    "action_scale": Field(None, "-", "by which the baselines divide the action", "cfg.env.actionScale"),
    "gripper_stiffness": Field(None, "N/m", "of the baselines' forces on the fingers", GRIPPER_STIFFNESS),
    "hand_index": Field(None, "-", "the hand, with link 7, in contact_forces", body("panda_link7")),
    "finger_indices": Field(
        None,
        "-",
        "left and right finger in contact_forces",
        lambda task: torch.tensor([task.body_names.index(f"panda_{side}finger") for side in ("left", "right")]),
    ),
    "cubeA_index": Field(None, "-", "cube A in contact_forces", body("cubeA")),
    "cubeB_index": Field(None, "-", "cube B in contact_forces", body("cubeB")),
    "start_position_noise": Field(
        None, "m", "cubes begin within plus and minus this of the table's centre, x and y", "cfg.env.startPositionNoise"
    ),
    "start_rotation_noise": Field(None, "rad", "and turned by up to this about z", "cfg.env.startRotationNoise"),
    "franka_dof_noise": Field(
        None, "rad", "the arm's joints begin within this of the default pose", "cfg.env.frankaDofNoise"
    ),
    "r_dist_scale": Field(
        None, "-", "of the human baseline's reward for a gripper near cube A", "cfg.env.distRewardScale"
    ),
    "r_lift_scale": Field(None, "-", "of the human baseline's reward for a lifted cube A", "cfg.env.liftRewardScale"),
    "r_align_scale": Field(
        None,
        "-",
        "of the human baseline's reward for a lifted cube A near its place on cube B",
        "cfg.env.alignRewardScale",
    ),
    "r_stack_scale": Field(None, "-", "the human baseline's reward for a stack", "cfg.env.stackRewardScale"),
    "max_episode_length": MAX_EPISODE_LENGTH,
    "dt": DT,
}


# a stack stands if cube A is above and on cube B and the gripper is away from it, as in IsaacGymEnvs, and, in addition,
# the gripper touches nothing and both cubes are nearly at rest
ALIGNED = 0.02  # m, horizontal distance of the cubes' centres
ON_TOP = 0.02  # m, cube A's height relative to that on cube B
AWAY = 0.04  # m, grip site from cube A's centre
RELEASED = 0.1  # N, contact forces on hand and fingers, added up
STILL = 0.05  # m/s; in free fall the speed changes by 0.16 m/s per step
STILL_TURN = 0.5  # rad/s
STAND_STEPS = 5  # consecutive control steps in which it must stand, 83 ms
ONLY = {
    "env.controlType": (
        "osc",
        "candidates define the actions, see user_functions/FrankaCubeStack/003_joint_torque.py",
    )
}


class FrankaCubeStack(SimTask):
    """Seven joints of the arm, two fingers, and two cubes on a table."""

    name = "FrankaCubeStack"
    model = "franka.xml"
    dof_names = (*(f"panda_joint{k}" for k in range(1, 8)), "panda_finger_joint1", "panda_finger_joint2")
    body_names = (*(f"panda_link{k}" for k in range(1, 8)), "panda_leftfinger", "panda_rightfinger", "cubeA", "cubeB")
    site_names = ("grip_site", "leftfinger_tip", "rightfinger_tip")
    object_keys = ("cubeA_state", "cubeB_state")
    # the task's own state, and quantities computed from the simulator's tensors
    kept_keys = ("cubeA_pos_relative", "cubeA_to_cubeB_pos", "stand_steps", "stacked", "just_stacked")
    ignored_keys = (
        "env.enableDebugVis",
        "env.aggregateMode",
        "env.controlType",
        "env.frankaPositionNoise",
        "env.frankaRotationNoise",
    )
    only = ONLY
    goal_keys = ()
    default_action_dim = None
    fitness_meaning = (
        "success rate: fraction of the episodes in which cube A comes to rest on cube B and is let go; 0 to 1"
    )
    fitness_bounds = (0.0, 1.0)
    fitness_reduction = "sum"  # one step at most counts
    fields = FIELDS

    def __init__(self, cfg: Mapping[str, Any], sim: Simulator) -> None:
        super().__init__(cfg, sim)
        unturned = (0.0, 0.0, 0.0, 1.0, *[0.0] * 6)
        self.default_state = {
            "dof_pos": self.per_env(DEFAULT_DOF_POS),
            "dof_vel": torch.zeros_like(sim.dof_vel),
            "cubeA_state": self.per_env([0.1, -0.1, TABLE_HEIGHT + CUBE_A / 2, *unturned]),
            "cubeB_state": self.per_env([0.1, 0.1, TABLE_HEIGHT + CUBE_B / 2, *unturned]),
        }
        self._gripper = slice(self.body_names.index("panda_link7"), self.body_names.index("cubeA"))
        self._refresh_derived()

    def step(self, command: Tensor) -> None:
        super().step(command)
        self._refresh_derived()
        steps, stacked = self.state["stand_steps"], self.state["stacked"]
        steps.add_(1.0).mul_(self._stands())
        now = (steps >= STAND_STEPS).float()
        self.state["just_stacked"].copy_(now * (1.0 - stacked))
        stacked.copy_(torch.maximum(stacked, now))

    def reset(self, mask: Tensor, initial: dict[str, Tensor], goal: dict[str, Tensor]) -> None:
        super().reset(mask, initial, goal)
        if initial:
            self._refresh_derived()
            for key in ("stand_steps", "stacked", "just_stacked"):
                self.state[key].masked_fill_(mask, 0.0)

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        return state["just_stacked"]

    def set_state(self, state: dict[str, Tensor]) -> None:
        super().set_state(state)
        self._refresh_derived()

    def _refresh_derived(self) -> None:
        state = self.state
        state["jacobian"].copy_(self.sim.jacobian[:, :, :7])
        state["mass_matrix"].copy_(self.sim.mass_matrix[:, :7, :7])
        torch.sub(state["cubeA_pos"], state["eef_pos"], out=state["cubeA_pos_relative"])
        torch.sub(state["cubeB_pos"], state["cubeA_pos"], out=state["cubeA_to_cubeB_pos"])

    def _stands(self) -> Tensor:
        """Return whether the stack stands in the present state, ``(num_envs,)`` bool."""
        state = self.state
        cube_a, cube_b = state["cubeA_state"], state["cubeB_state"]
        height = cube_a[:, 2] - (TABLE_HEIGHT + CUBE_B + 0.5 * CUBE_A)
        touched = _length(state["contact_forces"][:, self._gripper]).sum(dim=1)
        return (
            (_length(state["cubeA_to_cubeB_pos"][:, :2]) < ALIGNED)
            & (height.abs() < ON_TOP)
            & (_length(state["cubeA_pos_relative"]) > AWAY)
            & (touched < RELEASED)
            & (torch.maximum(_length(cube_a[:, 7:10]), _length(cube_b[:, 7:10])) < STILL)
            & (torch.maximum(_length(cube_a[:, 10:]), _length(cube_b[:, 10:])) < STILL_TURN)
        )


def _length(x: Tensor) -> Tensor:
    """Return lengths of vectors of two or three numbers; rounding does not depend on the number of environments."""
    squares = x * x
    total = squares[..., 0] + squares[..., 1]
    return torch.sqrt(total + squares[..., 2] if x.shape[-1] == 3 else total)
