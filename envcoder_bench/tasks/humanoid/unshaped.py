"""The Humanoid, the unshaped baseline: the task without shaping.

Its initial states and terminal function also define the environment in which every candidate's fitness is measured: an
episode ends only with a fall.
"""

import torch

from envcoder_bench.tasks.ant.unshaped import (
    compute_initial_state,
    compute_reward,
    compute_terminal,
    compute_torque,
)

ACTION_DIM = 21


def compute_observation(state_dict):
    """65 numbers unscaled: torso's height, quaternion and velocities, joints, feet's forces."""
    root_states, dof_pos, dof_vel = state_dict["root_states"], state_dict["dof_pos"], state_dict["dof_vel"]
    return torch.cat((root_states[:, 2:], dof_pos, dof_vel, state_dict["vec_sensor_tensor"]), dim=-1)
