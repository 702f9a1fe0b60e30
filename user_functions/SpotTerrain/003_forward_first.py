"""Goals that lead out of the tile: always at least 0.6 m/s forward, hardly sideways, in any heading.

The curriculum counts the distance walked. Commands to stand or to step aside do not show whether a robot can climb.
"""
from envcoder_bench.torch_utils import torch_rand_float


def compute_goal(state_dict):
    n, device = state_dict["commands"].shape[0], state_dict["commands"].device
    forward = torch_rand_float(0.6, 1.2, (n, 1), device)
    aside = torch_rand_float(-0.2, 0.2, (n, 1), device)
    heading = torch_rand_float(-3.14, 3.14, (n, 1), device)
    return {"commands": torch.cat((forward, aside, torch.zeros_like(forward), heading), dim=1)}
