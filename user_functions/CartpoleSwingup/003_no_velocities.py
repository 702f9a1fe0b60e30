"""An observation without velocities, with the human baseline's reward.

Position and angle of one moment do not say which way the pole swings, and a policy without memory cannot find out: a
pole that falls to the left looks like one that rises to the right.
"""


def compute_observation(cart_pos, pole_angle):
    return torch.stack((cart_pos, torch.sin(pole_angle), torch.cos(pole_angle)), dim=-1)
