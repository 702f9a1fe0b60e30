"""ANYmal, the unshaped baseline: the task without shaping.

Its initial states, goals and terminal function also define the environment in which every candidate's fitness is
measured: so commands cover the task's whole range, and an episode ends only with a fall.
"""

import torch

from envcoder_bench.torch_utils import quat_rotate_inverse, torch_rand_float

ACTION_DIM = 12


def compute_reward(state_dict):
    """Sparse success: 1 where both velocities are close to the command (within 0.25 m/s and 0.25 rad/s), else 0."""
    root_states, commands = state_dict["root_states"], state_dict["commands"]
    base_lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    base_ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_vel_error = torch.norm(commands[:, :2] - base_lin_vel[:, :2], p=2, dim=1)
    ang_vel_error = torch.abs(commands[:, 2] - base_ang_vel[:, 2])
    return ((lin_vel_error < 0.25) & (ang_vel_error < 0.25)).float()


def compute_observation(state_dict):
    """38 numbers unscaled: base height, quaternion and world velocities, commands, joints."""
    return torch.cat(
        (state_dict["root_states"][:, 2:], state_dict["commands"], state_dict["dof_pos"], state_dict["dof_vel"]), dim=-1
    )


def compute_dof_target(action, state_dict):
    """The action is the joints' position target, rad, counted from the default stance."""
    return state_dict["default_dof_pos"] + action


def compute_terminal(state_dict):
    """End with a fall: the base touches something with more than 1 N."""
    return torch.norm(state_dict["contact_forces"][:, state_dict["base_index"], :], p=2, dim=1) > 1.0


def compute_initial_state(state_dict):
    """The default stance, within 0.1 rad and 0.1 rad/s, so that no two episodes are the same."""
    default_dof_pos = state_dict["default_dof_pos"]
    n, device = default_dof_pos.shape[0], default_dof_pos.device
    return {
        "root_states": state_dict["initial_root_states"],
        "dof_pos": default_dof_pos + torch_rand_float(-0.1, 0.1, (n, 12), device),
        "dof_vel": torch_rand_float(-0.1, 0.1, (n, 12), device),
    }


def compute_goal(state_dict):
    """Commands over the task's whole range."""
    n, device = state_dict["commands"].shape[0], state_dict["commands"].device
    ranges = (state_dict["command_x_range"], state_dict["command_y_range"], state_dict["command_yaw_range"])
    return {"commands": torch.cat([torch_rand_float(r[0], r[1], (n, 1), device) for r in ranges], dim=1)}
