"""Running speed: the torso's horizontal velocity in the direction that it faces while it is upright, m/s, averaged over
the full episode (0 after a fall); negative goes backwards, no upper end

For "make the humanoid run as fast as possible", wherever to:

    eval-shapers --task Humanoid --fitness user_functions/fitness/humanoid_speed.py

The task's own fitness counts the speed towards the target alone, however the torso is turned. Here a curve costs
nothing, and running sideways or backwards earns nothing.
"""
import torch

UPRIGHT = 0.7  # cosine of the steepest tilt that counts, 45 degrees: falling forward is not running


def compute_fitness(root_states, heading_vec, up_vec):
    ahead, velocity = heading_vec[:, :2], root_states[:, 7:9]
    # as upright as below, the torso's x axis is at least 0.7 long on the ground
    speed = torch.sum(ahead * velocity, dim=1) / torch.norm(ahead, dim=1).clamp(min=0.1)
    return torch.where(up_vec[:, 2] > UPRIGHT, speed, torch.zeros_like(speed))
