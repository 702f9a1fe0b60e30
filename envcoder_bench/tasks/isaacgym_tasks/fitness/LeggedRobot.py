"""Velocity tracking: minus the squared errors of horizontal velocity and yaw rate, m^2/s^2 and rad^2/s^2; at most 0

For every LeggedRobot, with the formula of Eureka's Anymal (Ma et al. 2023, github.com/eureka-research/Eureka,
tasks/anymal.py: `consecutive_successes`). Averaged over the full episode, which nothing ends: a fall would otherwise
stop the cost.
"""

import torch

from envcoder_bench.torch_utils import quat_rotate_inverse

ENDS = False


def compute_fitness(root_states, commands):
    """Minus the squared errors."""
    lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    return -(lin_vel_error + torch.square(commands[:, 2] - ang_vel[:, 2]))
