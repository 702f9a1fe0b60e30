"""Cubes begin near the hand, with isaacgym's own random helpers."""
import torch
from isaacgym.torch_utils import torch_rand_float, quat_from_angle_axis


def _cube(template: torch.Tensor, low: float, high: float) -> torch.Tensor:
    n, device = template.shape[0], template.device
    state = template.clone()
    state[:, 0:2] = torch_rand_float(low, high, (n, 2), device)
    angle = torch_rand_float(-3.14159, 3.14159, (n, 1), device).squeeze(-1)
    axis = torch.zeros(n, 3, device=device)
    axis[:, 2] = 1.0
    state[:, 3:7] = quat_from_angle_axis(angle, axis)
    state[:, 7:] = 0.0
    return state


def compute_initial_state(state_dict):
    a = _cube(state_dict["cubeA_state"], -0.05, 0.05)
    b = _cube(state_dict["cubeB_state"], 0.1, 0.2)
    a[:, 2] = state_dict["table_height"] + state_dict["cubeA_size"] / 2
    b[:, 2] = state_dict["table_height"] + state_dict["cubeB_size"] / 2
    pos = state_dict["franka_default_dof_pos"].unsqueeze(0).repeat(a.shape[0], 1)
    return {"dof_pos": pos, "dof_vel": torch.zeros_like(pos), "cubeA_state": a, "cubeB_state": b}
