"""Success rate: fraction of the episodes in which cube A stands on cube B, aligned, and is let go; 0 to 1

As in Eureka's FrankaCubeStack (Ma et al. 2023, github.com/eureka-research/Eureka, tasks/franka_cube_stack.py:
`successes`).
"""

import torch

ENDS = False
ONCE = True


def compute_fitness(
    cubeA_pos, cubeA_pos_relative, cubeA_to_cubeB_pos, cubeA_size, cubeB_size, reward_settings_table_height
):
    """1 where it is stacked."""
    height = cubeA_pos[:, 2] - reward_settings_table_height
    aligned = torch.norm(cubeA_to_cubeB_pos[:, :2], dim=-1) < 0.02
    on_top = torch.abs(height - (cubeB_size + cubeA_size / 2.0)) < 0.02
    away = torch.norm(cubeA_pos_relative, dim=-1) > 0.04
    return (aligned & on_top & away).float()
