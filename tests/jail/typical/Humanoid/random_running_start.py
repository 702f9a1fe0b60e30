"""A running start with noise from torch.randn_like."""
import torch


def compute_initial_state(state_dict):
    root = state_dict["initial_root_states"].clone()
    root[:, 7] = 1.0 + 0.5 * torch.rand(root.shape[0], device=root.device)
    dof_pos = state_dict["initial_dof_pos"] + 0.1 * torch.randn_like(state_dict["initial_dof_pos"])
    dof_pos = torch.clamp(dof_pos, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"])
    return {"root_states": root, "dof_pos": dof_pos, "dof_vel": 0.1 * torch.randn_like(dof_pos)}
