"""Share of the full episode with the pole within 12 degrees of upright and the cart within 0.2 m of the middle, 0 to 1

For "balance the pole in the middle of the rail", which is more than the task's own fitness asks for:

    eval-shapers --task Cartpole --fitness user_functions/fitness/cartpole_centre.py 'fitness_bounds=[0,1]'
"""
import math

import torch


def compute_fitness(pole_angle, cart_pos):
    upright = torch.abs(pole_angle) <= math.radians(12.0)
    return (upright & (torch.abs(cart_pos) <= 0.2)).float()
