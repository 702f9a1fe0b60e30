"""Hovering: minus the distance to the target point, m, averaged over the full episode; at most 0

As in Eureka's Ingenuity (Ma et al. 2023, github.com/eureka-research/Eureka, tasks/ingenuity.py:
`consecutive_successes`). Nothing ends the episode: a crash would otherwise stop the cost.
"""

import torch

ENDS = False


def compute_fitness(root_states, target_root_positions):
    """Minus the distance to the target, 100 m at most."""
    return -torch.clamp(
        torch.sqrt(torch.sum(torch.square(target_root_positions - root_states[:, :3]), dim=1)), max=100.0
    )
