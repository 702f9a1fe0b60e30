"""Uniform random rotations with torch.rand (Shoemake)."""
import math
import torch


def random_quaternions(n, device):
    u1, u2, u3 = torch.rand(3, n, device=device).unbind(0)
    a, b = torch.sqrt(1.0 - u1), torch.sqrt(u1)
    return torch.stack([a * torch.sin(2 * math.pi * u2), a * torch.cos(2 * math.pi * u2),
                        b * torch.sin(2 * math.pi * u3), b * torch.cos(2 * math.pi * u3)], dim=-1)


def compute_goal(state_dict):
    return {"goal_rot": random_quaternions(state_dict["goal_rot"].shape[0], state_dict["goal_rot"].device)}
