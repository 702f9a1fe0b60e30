"""Half of the episodes begin with cube A between the fingers, so that placing is practised before picking up is learnt.

A reward for stacking teaches nothing as long as no stack is ever made. Fitness is measured from the task's own initial
states, with both cubes on the table.
"""
import math

import torch

from envcoder_bench.tasks.franka_cube_stack.human import compute_initial_state as on_the_table
from envcoder_bench.torch_utils import torch_rand_float

# in the arm's default pose the grip site is here, m, and the hand turned about y from straight down by this, rad
GRIP_X, GRIP_Z, TILT = 0.0080, 1.2181, -0.1274


def compute_initial_state(state_dict):
    start = on_the_table(state_dict)
    n, device = start["dof_pos"].shape[0], start["dof_pos"].device
    half_size = 0.5 * state_dict["cubeA_size"].unsqueeze(1)
    arm = state_dict["franka_default_dof_pos"][:7].expand(n, 7)
    pose = (GRIP_X, 0.0, GRIP_Z, 0.0, math.sin(0.5 * TILT), 0.0, math.cos(0.5 * TILT))
    held = torch.cat([torch.full((n, 1), x, device=device) for x in (*pose, *[0.0] * 6)], dim=1)
    in_hand = torch_rand_float(0.0, 1.0, (n, 1), device) < 0.5
    return {
        "dof_pos": torch.where(in_hand, torch.cat((arm, half_size, half_size), dim=1), start["dof_pos"]),
        "dof_vel": start["dof_vel"],
        "cubeA_state": torch.where(in_hand, held, start["cubeA_state"]),
        "cubeB_state": start["cubeB_state"],
    }
