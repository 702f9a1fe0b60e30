"""Cartpole, the unshaped baseline: the task without shaping, with a sparse reward.

Its initial states and terminal function also define the environment in which every candidate's fitness is measured.
"""

import math

import torch

from envcoder_bench.tasks.cartpole.human import (
    compute_initial_state,
    compute_observation,
    compute_terminal,
    compute_torque,
)

ACTION_DIM = 1


def compute_reward(pole_angle, cart_pos, reset_dist):
    """1 while the pole is within 12 degrees of upright and the cart in its range, else 0."""
    return ((torch.abs(pole_angle) <= math.radians(12.0)) & (torch.abs(cart_pos) <= reset_dist)).float()
