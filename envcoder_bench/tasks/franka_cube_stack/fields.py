"""The keys of FrankaCubeStack's ``state_dict``."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.sim_task import DT, MAX_EPISODE_LENGTH, PROGRESS, SimTask, actions

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
    "cubeA_state": Field(
        (13,),
        "m, -, m/s, rad/s",
        "cube A, to be stacked: position 3, quaternion xyzw 4, linear velocity 3, angular velocity 3; world frame",
    ),
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
    "contact_forces": Field(
        (11, 3), "N", "net contact force on each body in the last physics step; world frame", "sim.contact_forces"
    ),
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
