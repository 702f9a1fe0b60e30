"""A reward that asks for what fitness measures, and a little more: upright, in the middle, and still.

The bonus is the task's own success; the two small terms tell the better of two successes. Each part is returned as a
component and gets its own curve.
"""


def compute_reward(pole_angle, pole_vel, cart_pos, reset_dist):
    upright = (torch.abs(pole_angle) <= math.radians(12.0)).float()
    components = {
        "upright": upright,
        "centre": -0.2 * torch.square(cart_pos / reset_dist),
        "swing": -0.01 * torch.abs(pole_vel),
    }
    return sum(components.values()), components
