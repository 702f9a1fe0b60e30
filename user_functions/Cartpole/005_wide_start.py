"""Initial states far from upright: up to 0.5 rad and 1 m, with velocities to match.

The human baseline starts near the equilibrium, where a policy seldom sees how to recover. Fitness is measured from the
task's own initial states all the same.
"""
from envcoder_bench.torch_utils import torch_rand_float


def compute_initial_state(dof_pos):
    n, device = dof_pos.shape[0], dof_pos.device
    cart_pos = torch_rand_float(-1.0, 1.0, (n, 1), device)
    pole_angle = torch_rand_float(-0.5, 0.5, (n, 1), device)
    return {
        "dof_pos": torch.cat((cart_pos, pole_angle), dim=1),
        "dof_vel": torch_rand_float(-1.0, 1.0, (n, 2), device),
    }
