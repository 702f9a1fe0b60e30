"""Starts with random joint angles and base velocities drawn with torch.rand."""
import torch


def compute_initial_state(state_dict):
    default = state_dict["default_dof_pos"]
    n = default.shape[0]
    device = default.device
    dof_pos = default * (0.5 + torch.rand(n, default.shape[1], device=device))
    dof_vel = 0.2 * (2.0 * torch.rand_like(default) - 1.0)
    root_states = state_dict["initial_root_states"].clone()
    root_states[:, 7:9] += torch.randn(n, 2, device=device) * 0.3
    return {"root_states": root_states, "dof_pos": dof_pos, "dof_vel": dof_vel}


def compute_goal(state_dict):
    commands = torch.empty_like(state_dict["commands"]).uniform_(-1.0, 1.0)
    commands[:, 2] *= 0.5
    return {"commands": commands}
