"""Cartpole, the unshaped baseline: the task without shaping, with a sparse reward.

Its initial states and terminal function also define the environment in which every candidate's fitness is measured.
"""

import math

import torch

from envcoder_bench.torch_utils import torch_rand_float

ACTION_DIM = 1


def compute_reward(pole_angle, cart_pos, reset_dist):
    """1 while the pole is within 12 degrees of upright and the cart in its range, else 0."""
    return ((torch.abs(pole_angle) <= math.radians(12.0)) & (torch.abs(cart_pos) <= reset_dist)).float()


def compute_observation(cart_pos, cart_vel, pole_angle, pole_vel):
    """The whole state, 4 numbers."""
    return torch.stack((cart_pos, cart_vel, pole_angle, pole_vel), dim=-1)


def compute_torque(actions, max_push_effort):
    """Push the cart with up to maxEffort; the pole is passive."""
    return torch.cat((actions * max_push_effort, torch.zeros_like(actions)), dim=-1)


def compute_terminal(pole_angle, cart_pos, reset_dist):
    """End where the pole is below the horizontal or the cart out of its range."""
    return (torch.abs(cart_pos) > reset_dist) | (torch.abs(pole_angle) > math.pi / 2)


def compute_initial_state(dof_pos):
    """Near the unstable equilibrium: within 0.1 m and 0.1 rad, 0.25 m/s and 0.25 rad/s."""
    n, device = dof_pos.shape[0], dof_pos.device
    return {
        "dof_pos": torch_rand_float(-0.1, 0.1, (n, 2), device),
        "dof_vel": torch_rand_float(-0.25, 0.25, (n, 2), device),
    }
