"""Velocity tracking as the native Anymal ranks it: 1 is perfect."""

import torch

from envcoder_bench.torch_utils import quat_rotate_inverse


def compute_fitness(root_states, commands):
    lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    yaw_error = torch.square(commands[:, 2] - ang_vel[:, 2])
    return (torch.exp(-lin_error / 0.25) + 0.5 * torch.exp(-yaw_error / 0.25)) / 1.5
