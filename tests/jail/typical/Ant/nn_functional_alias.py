"""Aliases torch.nn.functional and uses many of its functions."""
import torch
from torch import nn

F = torch.nn.functional
relu = nn.functional.relu


def compute_reward(state_dict):
    root = state_dict["root_states"]
    forward = root[:, 7]
    heading = F.normalize(state_dict["heading_vec"], p=2, dim=-1)
    to_target = F.normalize(state_dict["targets"] - root[:, :3], dim=-1)
    alignment = F.cosine_similarity(heading, to_target, dim=-1)
    soft = F.softplus(forward, beta=2)
    hinge = relu(0.3 - root[:, 2])
    huber = F.smooth_l1_loss(state_dict["dof_vel"], torch.zeros_like(state_dict["dof_vel"]), reduction="none").mean(-1)
    return soft + 0.5 * alignment - 2.0 * hinge - 0.001 * huber
