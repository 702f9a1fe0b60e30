"""Sideways speed: the base's velocity along its own y axis, to the left, while it is upright, m/s, averaged over the
full episode (0 after a fall); negative goes to the right, no upper end
"""

import torch

from envcoder_bench.torch_utils import quat_rotate_inverse

UPRIGHT = 0.7  # cosine of the steepest tilt that counts, 45 degrees


def compute_fitness(root_states, gravity_vec):
    quat = root_states[:, 3:7]
    velocity = quat_rotate_inverse(quat, root_states[:, 7:10])
    gravity = quat_rotate_inverse(quat, gravity_vec)
    return torch.where(gravity[:, 2] < -UPRIGHT, velocity[:, 1], torch.zeros_like(velocity[:, 1]))
