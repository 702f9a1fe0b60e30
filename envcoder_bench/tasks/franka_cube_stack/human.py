"""FrankaCubeStack, the human baseline: the shaping of IsaacGymEnvs' task, with another reward for a stack.

Source: IsaacGymEnvs, tasks/franka_cube_stack.py and cfg/task/FrankaCubeStack.yaml (NVIDIA, BSD-3-Clause). Differences:
reward and observation see the state after the physics step they evaluate; the fingers get a force instead of position
drives (`gripper_force`); the Jacobian is that of the grip site, whose velocity the controller damps; cube B begins on
the table, not 1 cm inside it; and initial positions of cubes that are too close are drawn again up to eight times, not
a hundred.

Releasing the cube is rewarded. In IsaacGymEnvs a stack pays 16 once and ends the episode, while holding the cube in its
place pays 3.6 per step, 360 in all when discounted by 0.99, so that PPO learns to hold it (docs/tasks.md; the original
is user_functions/FrankaCubeStack/007_ends_with_a_stack.py). Here every step at which the stack stands pays 16. It
stands if hand and fingers touch nothing, and the reward grows until the gripper is 4 cm away; a condition of 4 cm only,
as in IsaacGymEnvs, can be met by holding the cube by its edge.
"""

import math

import torch

from envcoder_bench.torch_utils import tensor_clamp, torch_rand_float

ACTION_DIM = 7


def compute_reward(state_dict):
    """Close to cube A, then lifted and close to its place on cube B; more if released there than if held."""
    size_a, size_b, offset = state_dict["cubeA_size"], state_dict["cubeB_size"], state_dict["cubeA_to_cubeB_pos"]
    cube_a, d = state_dict["cubeA_pos"], torch.norm(state_dict["cubeA_pos_relative"], dim=-1)
    d_left = torch.norm(cube_a - state_dict["eef_lf_pos"], dim=-1)
    d_right = torch.norm(cube_a - state_dict["eef_rf_pos"], dim=-1)
    near = 1.0 - torch.tanh(10.0 * (d + d_left + d_right) / 3.0)

    height = cube_a[:, 2] - state_dict["table_height"]
    lifted = ((height - size_a) > 0.04).float()
    vertical = offset[:, 2] + (size_a + size_b) / 2.0
    to_place = torch.sqrt(torch.sum(torch.square(offset[:, :2]), dim=-1) + torch.square(vertical))
    aligned = (1.0 - torch.tanh(10.0 * to_place)) * lifted
    components = {
        "dist": state_dict["r_dist_scale"] * torch.maximum(near, aligned),
        "lift": state_dict["r_lift_scale"] * lifted,
        "align": state_dict["r_align_scale"] * aligned,
    }
    held = components["dist"] + components["lift"] + components["align"]
    stack = state_dict["r_stack_scale"] * let_go(state_dict)
    return torch.maximum(held, stack), {**components, "stack": stack}


def let_go(state_dict):
    """Distance of the gripper from a released cube A on cube B, relative to 4 cm and at most 1: ``(n,)``."""
    height = state_dict["cubeA_pos"][:, 2] - state_dict["table_height"]
    on_b = torch.abs(height - (state_dict["cubeB_size"] + state_dict["cubeA_size"] / 2.0)) < 0.02
    over_b = torch.norm(state_dict["cubeA_to_cubeB_pos"][:, :2], dim=-1) < 0.02
    forces = torch.norm(state_dict["contact_forces"], dim=-1)
    force = forces[:, state_dict["hand_index"]] + forces[:, state_dict["finger_indices"]].sum(dim=-1)
    away = torch.clamp(torch.norm(state_dict["cubeA_pos_relative"], dim=-1) / 0.04, max=1.0)
    return torch.where(on_b & over_b & (force < 0.1), away, 0.0)


def compute_observation(cubeA_quat, cubeA_pos, cubeA_to_cubeB_pos, eef_pos, eef_quat, q_gripper):
    """19 numbers: cube A's quaternion 4 and position 3, that to B 3, hand's position 3 and quaternion 4, fingers 2."""
    return torch.cat((cubeA_quat, cubeA_pos, cubeA_to_cubeB_pos, eef_pos, eef_quat, q_gripper), dim=-1)


def compute_torque(action, state_dict):
    """The hand's target relative to its pose: position 3, rotation 3; then the gripper: open (0 or more) or closed."""
    dpose = action[:, :6] * state_dict["cmd_limit"] / state_dict["action_scale"]
    return torch.cat((arm_torque(dpose, state_dict), gripper_force(action[:, 6:], state_dict)), dim=-1)


def arm_torque(dpose, state_dict):
    """Operational space control (Khatib 1987): torques for the hand's acceleration, ``(n, 7)``.

    ``dpose`` is the target's offset, m and rad. In the null space, the arm is pulled to its default pose.
    """
    q, qd = state_dict["dof_pos"][:, :7], state_dict["dof_vel"][:, :7]
    jacobian, mass = state_dict["jacobian"], state_dict["mass_matrix"]
    transposed = jacobian.transpose(1, 2)
    mass_inv = torch.inverse(mass)
    # a stretched arm cannot move its hand in all directions, and IsaacGymEnvs' matrix has no inverse then: a little on
    # its diagonal helps
    hand_mass = torch.inverse(jacobian @ mass_inv @ transposed + 1e-4 * torch.eye(6, device=q.device))
    wanted = state_dict["kp"] * dpose - state_dict["kd"] * state_dict["eef_vel"]
    torque = transposed @ hand_mass @ wanted.unsqueeze(-1)

    to_default = torch.remainder(state_dict["franka_default_dof_pos"][:7] - q + math.pi, 2.0 * math.pi) - math.pi
    posture = mass @ (state_dict["kp_null"] * to_default - state_dict["kd_null"] * qd).unsqueeze(-1)
    through_hand = transposed @ (hand_mass @ (jacobian @ (mass_inv @ posture)))
    limits = state_dict["franka_effort_limits"][:7]
    return tensor_clamp((torque + posture - through_hand).squeeze(-1), -limits, limits)


def gripper_force(action, state_dict):
    """Forces of the fingers towards open or closed, ``(n, 2)``, for an ``action`` ``(n, 1)``.

    IsaacGymEnvs drives the fingers to positions. Here all joints of an environment are commanded by effort, so this is
    the spring of such a drive, limited to the fingers' 20 N; the model's joint damping limits the speed to 0.2 m/s.
    """
    lower, upper = state_dict["franka_dof_lower_limits"][7:], state_dict["franka_dof_upper_limits"][7:]
    limits = state_dict["franka_effort_limits"][7:]
    target = torch.where(action >= 0.0, upper, lower)
    return tensor_clamp(state_dict["gripper_stiffness"] * (target - state_dict["q_gripper"]), -limits, limits)


def compute_initial_state(state_dict):
    """Cubes around the centre of the table, rotated, apart from each other; the arm near its default pose; at rest."""
    n, device = state_dict["q"].shape[0], state_dict["q"].device
    default, noise = state_dict["franka_default_dof_pos"], state_dict["franka_dof_noise"]
    arm = default[:7] + noise * torch_rand_float(-1.0, 1.0, (n, 7), device)
    arm = tensor_clamp(arm, state_dict["franka_dof_lower_limits"][:7], state_dict["franka_dof_upper_limits"][:7])
    fingers = default[7:].expand(n, 2)

    reach = state_dict["start_position_noise"]
    b = reach * torch_rand_float(-1.0, 1.0, (n, 2), device)
    draws = reach * torch_rand_float(-1.0, 1.0, (n, 18), device)
    apart = (state_dict["cubeA_size"] + state_dict["cubeB_size"]) * math.sqrt(2.0)
    a = draws[:, :2]
    for k in range(1, 9):
        a = torch.where(too_near(a, b, apart), draws[:, 2 * k : 2 * k + 2], a)
    # one in a thousand is still too close: it is placed in the opposite corner
    a = torch.where(too_near(a, b, apart), torch.where(b > 0.0, -reach, reach), a)
    return {
        "dof_pos": torch.cat((arm, fingers), dim=-1),
        "dof_vel": torch.zeros_like(state_dict["dof_vel"]),
        "cubeA_state": on_table(a, state_dict["cubeA_size"], state_dict),
        "cubeB_state": on_table(b, state_dict["cubeB_size"], state_dict),
    }


def too_near(a, b, apart):
    """Whether the points ``a`` and ``b`` ``(n, 2)`` are closer than ``apart`` ``(n,)``: ``(n, 1)`` bool."""
    return (torch.norm(a - b, dim=-1) < apart).unsqueeze(-1)


def on_table(xy, size, state_dict):
    """States ``(n, 13)`` of cubes at rest on the table, turned about z by a random angle."""
    n, device = xy.shape[0], xy.device
    half = 0.5 * state_dict["start_rotation_noise"] * torch_rand_float(-1.0, 1.0, (n, 1), device)
    z = (state_dict["table_height"] + 0.5 * size).unsqueeze(-1)
    nothing = torch.zeros(n, 2, device=device)
    return torch.cat((xy, z, nothing, torch.sin(half), torch.cos(half), nothing, nothing, nothing), dim=-1)
