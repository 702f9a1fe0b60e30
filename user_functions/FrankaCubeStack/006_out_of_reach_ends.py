"""Episodes also end where cube A is out of reach: pushed away, it teaches nothing more.

More episodes fit into the same training. Ending costs the policy the rewards that could have followed, so it learns to
keep the cube near.
"""
import torch

BASE = (-0.45, 0.0)  # m, where the arm stands


def compute_terminal(state_dict):
    cube = state_dict["cubeA_pos"]
    away = torch.sqrt(torch.square(cube[:, 0] - BASE[0]) + torch.square(cube[:, 1] - BASE[1]))
    height = cube[:, 2] - state_dict["table_height"]
    on_b = torch.abs(height - state_dict["cubeB_size"] - 0.5 * state_dict["cubeA_size"]) < 0.02
    over_b = torch.norm(state_dict["cubeA_to_cubeB_pos"][:, :2], dim=1) < 0.02
    let_go = torch.norm(state_dict["cubeA_pos_relative"], dim=1) > 0.04
    return (away > 0.8) | (away < 0.15) | (on_b & over_b & let_go)
