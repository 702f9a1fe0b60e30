"""Forward speed: the base's velocity along its own x axis while it is upright, m/s, averaged over the full episode (0
after a fall); negative goes backwards, no upper end

For a description such as "make ANYmal run as fast as possible", which the task's own fitness, velocity tracking, does
not measure:

    eval-shapers --task Anymal --fitness user_functions/fitness/anymal_speed.py

Evaluation episodes are the unshaped task's, as ever: commands are drawn at random over the task's whole range, -2 to 2
m/s forward. They are in the state, and do not count here: a policy that follows them stands near 0 m/s on average, one
that runs ahead whatever they say is best.
"""
import torch

from envcoder_bench.torch_utils import quat_rotate_inverse

UPRIGHT = 0.7  # cosine of the steepest tilt that counts, 45 degrees: falling forward is not running


def compute_fitness(root_states, gravity_vec):
    quat = root_states[:, 3:7]
    velocity = quat_rotate_inverse(quat, root_states[:, 7:10])
    gravity = quat_rotate_inverse(quat, gravity_vec)
    return torch.where(gravity[:, 2] < -UPRIGHT, velocity[:, 0], torch.zeros_like(velocity[:, 0]))
