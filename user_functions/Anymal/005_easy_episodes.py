"""Easier episodes: half of them begin in the default stance and ask for no more than a walk straight ahead.

Initial states and goals decide what the policy practises. Fitness is always measured on the task's own episodes, so
that an easier exercise pays only if what it teaches carries over: the other half keeps the human baseline's range.
"""
from envcoder_bench.torch_utils import torch_rand_float


def compute_initial_state(state_dict):
    default_dof_pos = state_dict["default_dof_pos"]
    n, device = default_dof_pos.shape[0], default_dof_pos.device
    easy = torch_rand_float(0.0, 1.0, (n, 1), device) < 0.5
    stretch = torch_rand_float(0.5, 1.5, (n, 12), device)
    return {
        "root_states": state_dict["initial_root_states"],
        "dof_pos": torch.where(easy, default_dof_pos, default_dof_pos * stretch),
        "dof_vel": torch.zeros_like(default_dof_pos),
    }


def compute_goal(state_dict):
    n, device = state_dict["commands"].shape[0], state_dict["commands"].device
    ranges = (state_dict["command_x_range"], state_dict["command_y_range"], state_dict["command_yaw_range"])
    full = torch.cat([torch_rand_float(r[0], r[1], (n, 1), device) for r in ranges], dim=1)
    ahead = torch_rand_float(0.0, 1.0, (n, 1), device)
    forward = torch.cat((ahead, torch.zeros(n, 2, device=device)), dim=1)
    easy = torch_rand_float(0.0, 1.0, (n, 1), device) < 0.5
    return {"commands": torch.where(easy, forward, full)}
