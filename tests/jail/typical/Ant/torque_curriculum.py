"""Scaled joint torques; the scale depends on the step of the episode."""
import torch
from typing import Union

ACTION_DIM = 8
Number = Union[int, float]


def smoothstep(x: torch.Tensor, lo: Number = 0, hi: Number = 1) -> torch.Tensor:
    t = ((x - lo) / (hi - lo)).clamp(0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def compute_torque(action: torch.Tensor, state_dict) -> torch.Tensor:
    progress = state_dict["progress_buf"].float()
    warm_up = smoothstep(progress, 0, 20).unsqueeze(1)
    gears = state_dict["joint_gears"].to(action.device)
    return action * gears * state_dict["power_scale"] * (0.5 + 0.5 * warm_up)


def compute_initial_state(state_dict):
    root = state_dict["initial_root_states"].clone()
    root[..., 2] += 0.05
    dof_pos = torch.max(torch.min(state_dict["initial_dof_pos"] + 0.05, state_dict["dof_limits_upper"]),
                        state_dict["dof_limits_lower"])
    return dict(root_states=root, dof_pos=dof_pos, dof_vel=torch.zeros_like(dof_pos))
