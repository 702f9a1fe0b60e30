"""Starts anywhere: torch.rand and torch.randint for the side."""
import math
import torch


def compute_initial_state(state_dict):
    dof_pos = state_dict["dof_pos"]
    n, device = dof_pos.shape[0], dof_pos.device
    pos = torch.zeros_like(dof_pos)
    pos[:, 0] = 2.0 * torch.rand(n, device=device) - 1.0
    side = 2.0 * torch.randint(0, 2, (n,), device=device).float() - 1.0
    pos[:, 1] = side * math.pi / 8 * torch.rand(n, device=device)
    vel = torch.normal(0.0, 0.1, size=(n, 2), device=device)
    return {"dof_pos": pos, "dof_vel": vel}
