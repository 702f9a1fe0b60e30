"""Balance: fraction of the full episode before the ball falls off the tray; 0 to 1

The episode's length, as in Eureka's BallBalance (Ma et al. 2023, github.com/eureka-research/Eureka,
tasks/ball_balance.py: `consecutive_successes` is the mean length of the episodes that end).
"""

import torch


def compute_fitness(dof_pos):
    """1 for every step."""
    return torch.ones_like(dof_pos[:, 0])
