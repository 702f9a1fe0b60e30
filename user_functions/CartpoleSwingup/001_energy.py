"""Energy first, then a calm pole: a swing-up as textbooks teach it.

The pole needs the energy that it has upright and at rest, no less and no more. A part of the reward is for having it, at
any angle, and says already in the first swing which push was right. The larger part is for height without motion.
"""


def compute_reward(pole_angle, pole_vel, cart_pos, reset_dist):
    height = 0.5 + 0.5 * torch.cos(pole_angle)
    # of a rod of 1 m, J per kg: height of its centre times 9.81, and 1/2 * 1/3 * velocity squared; 9.81 at the top
    energy = 9.81 * height + torch.square(pole_vel) / 6.0
    components = {
        "energy": 0.3 * torch.exp(-torch.abs(energy - 9.81) / 5.0),
        "balance": height / (1.0 + 0.2 * torch.square(pole_vel) * height),
        "centre": -0.2 * torch.square(cart_pos / reset_dist),
    }
    return sum(components.values()), components
