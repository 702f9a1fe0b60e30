"""CartpoleSwingup, the unshaped baseline: the task without shaping, with a sparse reward.

Its initial states and terminal function also define the environment in which every candidate's fitness is measured.
"""

import math

import torch

from envcoder_bench.torch_utils import torch_rand_float

ACTION_DIM = 1


def compute_reward(pole_angle, cart_pos, reset_dist):
    """1 while the pole is within 12 degrees of upright and the cart in its range, else 0."""
    upright = torch.cos(pole_angle) >= math.cos(math.radians(12.0))
    return (upright & (torch.abs(cart_pos) <= reset_dist)).float()


def compute_observation(cart_pos, cart_vel, pole_angle, pole_vel):
    """The whole state, 4 numbers, with the raw angle."""
    return torch.stack((cart_pos, cart_vel, pole_angle, pole_vel), dim=-1)


def compute_torque(actions, max_push_effort):
    """Push the cart with up to maxEffort; the pole is passive."""
    return torch.cat((actions * max_push_effort, torch.zeros_like(actions)), dim=-1)


def compute_terminal(cart_pos, reset_dist):
    """End where the cart leaves its range."""
    return torch.abs(cart_pos) > reset_dist


def compute_initial_state(dof_pos):
    """The pole at any angle and the cart within 0.5 m of the middle, both nearly at rest."""
    n, device = dof_pos.shape[0], dof_pos.device
    cart_pos = torch_rand_float(-0.5, 0.5, (n, 1), device)
    pole_angle = torch_rand_float(-math.pi, math.pi, (n, 1), device)
    return {
        "dof_pos": torch.cat((cart_pos, pole_angle), dim=1),
        "dof_vel": torch_rand_float(-0.1, 0.1, (n, 2), device),
    }
