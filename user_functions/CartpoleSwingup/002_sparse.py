"""A sparse reward: 1 while the pole is upright, else 0.

It says what is wanted and nothing about how to get there. Episodes begin at any angle, so that a policy meets the reward
by chance; what it finds first is that a whirling pole meets it in every turn.
"""


def compute_reward(pole_angle):
    return (torch.cos(pole_angle) >= math.cos(math.radians(12.0))).float()
