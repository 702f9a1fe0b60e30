"""Closed-form controllers as policies of shipped tasks, without training."""

import torch
from scripted_policies import Controller
from torch import Tensor

CARTPOLE = """
def compute_observation(cart_pos, cart_vel, pole_angle, pole_vel, progress_buf):
    return torch.stack([cart_pos, cart_vel, pole_angle, pole_vel, (progress_buf % 2).float()], dim=1)
"""
ANYMAL = """
def compute_observation(state_dict):
    odd = (state_dict["progress_buf"] % 2).float().unsqueeze(1)
    return torch.cat([odd, state_dict["dof_pos"] - state_dict["default_dof_pos"]], dim=1)
"""

# Cartpole: gains of a linear-quadratic regulator, N per unit of cart_pos, cart_vel, pole_angle, pole_vel


def balance(*gains: float, chatter: float = 0.0) -> Controller:
    def control(obs: Tensor) -> Tensor:
        push = (obs[:, :4] * torch.tensor(gains)).sum(dim=1, keepdim=True) / 400.0
        return push + chatter * (1.0 - 2.0 * obs[:, 4:5])

    return control


SOUND = (8.8, 11.2, -85.5, -18.3)
BALANCE = {
    "sound": balance(*SOUND),
    "soft": balance(0.91, 2.25, -46.4, -9.6),
    "chatter": balance(*SOUND, chatter=0.1),
    "delay_fragile": balance(104.0, 112.0, -569.0, -117.0),
}

# ANYmal stands


def stand(obs: Tensor) -> Tensor:
    return torch.zeros(len(obs), 12)


def squeeze(obs: Tensor) -> Tensor:
    """Press the feet inwards, and fold the legs once the hips have turned inwards: feet that slip save the robot."""
    action, inwards = stand(obs), torch.tensor([-1.0, -1.0, 1.0, 1.0])
    hips, front, rear = [0, 3, 6, 9], [2, 8], [5, 11]
    folds = ((obs[:, 1:][:, hips] * inwards).mean(dim=1, keepdim=True) > 0.1).float()
    action[:, hips] = inwards * (0.7 + 0.3 * folds)
    action[:, front] -= folds
    action[:, rear] += folds
    return action


STANDS = {"stand": stand, "friction_fragile": squeeze}
