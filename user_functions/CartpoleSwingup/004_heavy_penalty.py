"""A good reward with a penalty of the wrong size.

The height of the tip earns 1 at most, and motion costs more than that long before the pole is up, so that most policies
leave the rail to end the episode. A tenth of the penalty would do; the curves of the components show which of them rules.
"""


def compute_reward(pole_angle, pole_vel, cart_vel):
    components = {
        "height": 0.5 + 0.5 * torch.cos(pole_angle),
        "motion": -0.3 * torch.abs(pole_vel) - 0.3 * torch.abs(cart_vel),
    }
    return sum(components.values()), components
