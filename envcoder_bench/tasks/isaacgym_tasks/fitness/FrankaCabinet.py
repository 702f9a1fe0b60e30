"""Success rate: fraction of the episodes in which the drawer is opened by more than 0.39 m; 0 to 1

As in Eureka's FrankaCabinet (Ma et al. 2023, github.com/eureka-research/Eureka, tasks/franka_cabinet.py:
`successes`).
"""

ENDS = False
ONCE = True


def compute_fitness(cabinet_dof_pos):
    """1 where the drawer is open."""
    return (cabinet_dof_pos[:, 3] > 0.39).float()
