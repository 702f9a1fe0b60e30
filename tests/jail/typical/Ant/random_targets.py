"""Random targets on a circle, with torch.rand."""
import torch
import math


def compute_goal(state_dict):
    targets = state_dict["targets"]
    n = targets.shape[0]
    theta = 2 * math.pi * torch.rand((n,), device=targets.device)
    radius = 500.0 + 500.0 * torch.rand((n,), device=targets.device)
    return {"targets": torch.stack([radius * torch.cos(theta), radius * torch.sin(theta), torch.zeros_like(theta)], dim=-1)}
