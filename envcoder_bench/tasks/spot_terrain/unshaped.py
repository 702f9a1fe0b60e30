"""Spot on rough ground, the unshaped baseline: the task without shaping.

Its initial states, goals and terminal function also define the environment in which every candidate's fitness is
measured: so commands cover the task's whole range, and an episode ends only with a fall.
"""

import torch

from envcoder_bench.tasks.anymal_terrain.unshaped import (
    compute_dof_target,
    compute_goal,
    compute_initial_state,
    compute_reward,
    compute_terminal,
)

ACTION_DIM = 12


def compute_observation(state_dict):
    """226 numbers unscaled: base height, quaternion and world velocities, commands, joints, heights under the scan."""
    return torch.cat(
        (
            state_dict["root_states"][:, 2:],
            state_dict["commands"],
            state_dict["dof_pos"],
            state_dict["dof_vel"],
            state_dict["measured_heights"],
        ),
        dim=-1,
    )
