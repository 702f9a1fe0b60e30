"""A reward that asks for what fitness measures, forward speed, and for little else.

The human baseline pays for being alive, upright and facing the target, whether the Ant moves or not. Here speed is all
that pays; a small price on torque makes the motion smooth.
"""


def compute_reward(state_dict):
    speed = state_dict["potentials"] - state_dict["prev_potentials"]  # m/s towards the target
    components = {
        "speed": speed,
        "alive": torch.full_like(speed, 0.2),  # so that falling is never the best way out
        "effort": -0.01 * torch.sum(torch.square(state_dict["actions"]), dim=1),
    }
    return sum(components.values()), components
