"""Mean opening of the drawer over the episode, m, plus ten times the share of the steps in which it is above 0.39 m"""


def compute_fitness(cabinet_dof_pos):
    return cabinet_dof_pos[:, 3] + 10.0 * (cabinet_dof_pos[:, 3] > 0.39).float()
