"""A smooth, bounded reward: the height of the pole's tip, as the cosine of its angle.

It has a slope everywhere, also far from upright where a bonus is flat, and it does not care about whole turns.
"""


def compute_reward(state_dict):
    height = torch.cos(state_dict["pole_angle"])
    closeness = torch.exp(-torch.square(state_dict["cart_pos"]))
    return 0.8 * height + 0.2 * closeness
