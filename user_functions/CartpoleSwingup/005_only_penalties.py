"""A bad reward, on purpose: it only punishes motion.

Every step costs something and no step earns anything, so that the shortest episode is the best: the policy learns to
leave the rail at once. Its own return rises all the while, and its fitness falls below that of an untrained policy.
"""


def compute_reward(pole_vel, cart_vel):
    return -0.1 - 0.01 * torch.abs(cart_vel) - 0.01 * torch.abs(pole_vel)
