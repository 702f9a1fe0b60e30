"""An observation without the raw angle: sine and cosine, and velocities scaled to the size of 1.

An angle jumps where it wraps; its sine and cosine do not. Five numbers instead of four: a candidate chooses the width.
"""


def compute_observation(state_dict):
    angle = state_dict["pole_angle"]
    return torch.stack(
        (
            state_dict["cart_pos"] / state_dict["reset_dist"],
            0.2 * state_dict["cart_vel"],
            torch.sin(angle),
            torch.cos(angle),
            0.2 * state_dict["pole_vel"],
        ),
        dim=-1,
    )
