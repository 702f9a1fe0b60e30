"""The height of the pole's tip, and nothing else: what fitness measures.

It has a slope at every angle, so that the first swings are worth something already. But nothing tells a pole that stands
from one that flies past: the policy learns to whirl the pole around, faster and faster, which is worth 0.5.
"""


def compute_reward(pole_angle):
    return 0.5 + 0.5 * torch.cos(pole_angle)
