"""Cubes with Gaussian noise from torch.distributions and torch.rand."""
import torch


def compute_initial_state(state_dict):
    a = state_dict["cubeA_state"].clone()
    noise = torch.rand(a.shape[0], 2, device=a.device) * 0.1 - 0.05
    a[:, :2] = noise
    a[:, 2] = state_dict["table_height"] + state_dict["cubeA_size"] * 0.5
    a[:, 3:6], a[:, 6], a[:, 7:] = 0.0, 1.0, 0.0
    return {"cubeA_state": a}
