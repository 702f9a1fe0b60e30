"""A table of conditions, evaluated with functools.reduce and torch.logical_or."""
from functools import reduce
import torch

CONDITIONS = (
    lambda s: s["cubeA_pos"][:, 2] < s["table_height"] - 0.05,
    lambda s: s["cubeB_pos"][:, 2] < s["table_height"] - 0.05,
    lambda s: torch.norm(s["cubeA_pos"][:, :2], dim=-1) > 0.6,
    lambda s: s["stacked"].bool(),
)


def compute_terminal(state_dict):
    return reduce(torch.logical_or, (condition(state_dict) for condition in CONDITIONS))
