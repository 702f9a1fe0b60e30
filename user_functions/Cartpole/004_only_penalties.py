"""A bad reward, on purpose: it only punishes motion.

Every step costs something and no step earns anything, so that the best episode is the shortest: the policy learns to
lose the pole at once. Its own return rises all the while; fitness shows what became of the task.
"""


def compute_reward(pole_vel, cart_vel):
    return -0.1 - 0.01 * torch.abs(cart_vel) - 0.01 * torch.abs(pole_vel)
