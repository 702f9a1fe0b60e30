"""Episodes also end where cube A is out of reach: pushed away, it teaches nothing more.

More episodes fit into the same training. Ending costs the policy the rewards that could have followed, so it learns to
keep the cube near.
"""
import torch

BASE = (-0.45, 0.0)  # m, where the arm stands


def compute_terminal(state_dict):
    cube = state_dict["cubeA_pos"]
    away = torch.sqrt(torch.square(cube[:, 0] - BASE[0]) + torch.square(cube[:, 1] - BASE[1]))
    return (away > 0.8) | (away < 0.15)
