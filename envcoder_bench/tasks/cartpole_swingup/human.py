"""CartpoleSwingup, the human baseline: the reward and the observation of the DeepMind Control Suite's swing-up.

Source: dm_control, suite/cartpole.py, the smooth reward, and utils/rewards.py for its tolerances (DeepMind,
Apache-2.0). Two differences: reward and observation see the state after the physics step they evaluate, and episodes
begin with the pole at any angle.
"""

import math

import torch

from envcoder_bench.tasks.cartpole.human import compute_torque
from envcoder_bench.torch_utils import torch_rand_float

ACTION_DIM = 1


def compute_reward(pole_angle, pole_vel, cart_pos, actions):
    """Height of the pole's tip, times terms for a cart in the middle, little effort and little motion; 0 to 1."""
    upright = 0.5 + 0.5 * torch.cos(pole_angle)
    centred = 0.5 + 0.5 * torch.pow(0.1, torch.square(cart_pos / 2.0))
    effort = 0.8 + 0.2 * torch.clamp(1.0 - torch.square(actions[:, 0]), min=0.0)
    calm = 0.5 + 0.5 * torch.pow(0.1, torch.square(pole_vel / 5.0))
    return upright * centred * effort * calm


def compute_observation(cart_pos, cart_vel, pole_angle, pole_vel):
    """The whole state, 5 numbers: the angle as its cosine and sine."""
    return torch.stack((cart_pos, torch.cos(pole_angle), torch.sin(pole_angle), cart_vel, pole_vel), dim=-1)


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
