"""FrankaCubeStack, the unshaped baseline: the task without shaping.

Its initial states also define the environment in which every candidate's fitness is measured. Only the time-out ends an
episode; an early success counts.
"""

import math

import torch

from envcoder_bench.torch_utils import tensor_clamp, torch_rand_float

ACTION_DIM = 8


def compute_reward(just_stacked):
    """Sparse success: 1 on the step on which cube A has come to rest on cube B, once in an episode."""
    return just_stacked


def compute_observation(dof_pos, dof_vel, eef_pos, eef_quat, cubeA_state, cubeB_state):
    """51 numbers unscaled: joints, hand, and both cubes with their velocities."""
    return torch.cat((dof_pos, dof_vel, eef_pos, eef_quat, cubeA_state, cubeB_state), dim=-1)


def compute_torque(action, franka_effort_limits):
    """The action is the motors' efforts, as fractions of their greatest: 7 joints, then both fingers."""
    return torch.cat((action, action[:, 7:]), dim=-1) * franka_effort_limits


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
    """Whether the points ``a`` and ``b`` ``(n, 2)`` are nearer than ``apart`` ``(n,)``: ``(n, 1)`` bool."""
    return (torch.norm(a - b, dim=-1) < apart).unsqueeze(-1)


def on_table(xy, size, state_dict):
    """States ``(n, 13)`` of cubes at rest on the table, turned about z by a random angle."""
    n, device = xy.shape[0], xy.device
    half = 0.5 * state_dict["start_rotation_noise"] * torch_rand_float(-1.0, 1.0, (n, 1), device)
    z = (state_dict["table_height"] + 0.5 * size).unsqueeze(-1)
    nothing = torch.zeros(n, 2, device=device)
    return torch.cat((xy, z, nothing, torch.sin(half), torch.cos(half), nothing, nothing, nothing), dim=-1)
