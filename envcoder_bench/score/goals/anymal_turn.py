"""Turning on the spot: the base's angular velocity about its own z axis, to the left, rad/s, less twice its horizontal
speed, m/s, while it is upright, averaged over the full episode (0 after a fall); no upper end
"""

import torch

from envcoder_bench.torch_utils import quat_rotate_inverse

UPRIGHT = 0.7  # cosine of the steepest tilt that counts, 45 degrees
DRIFT = 2.0  # rad/s that 1 m/s costs


def compute_fitness(root_states, gravity_vec):
    quat = root_states[:, 3:7]
    turning = quat_rotate_inverse(quat, root_states[:, 10:13])[:, 2]
    gravity = quat_rotate_inverse(quat, gravity_vec)
    drift = torch.sqrt(torch.sum(root_states[:, 7:9] ** 2, dim=1) + 1e-12)
    return torch.where(gravity[:, 2] < -UPRIGHT, turning - DRIFT * drift, torch.zeros_like(turning))
