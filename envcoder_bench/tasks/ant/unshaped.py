"""The Ant, the unshaped baseline: the task without shaping.

Its initial states and terminal function also define the environment in which every candidate's fitness is measured: an
episode ends only with a fall.
"""

import torch

from envcoder_bench.tasks.ant.human import compute_terminal
from envcoder_bench.torch_utils import tensor_clamp, torch_rand_float

ACTION_DIM = 8


def compute_reward(potentials, prev_potentials):
    """What fitness measures, forward speed: the decrease of the distance to the target per time, m/s."""
    return potentials - prev_potentials


def compute_observation(state_dict):
    """51 numbers unscaled: torso's height, quaternion and velocities, joints, feet's forces."""
    root_states, dof_pos, dof_vel = state_dict["root_states"], state_dict["dof_pos"], state_dict["dof_vel"]
    return torch.cat((root_states[:, 2:], dof_pos, dof_vel, state_dict["vec_sensor_tensor"]), dim=-1)


def compute_torque(actions, motor_efforts):
    """The action is the motors' torque, as a fraction of their greatest."""
    return actions * motor_efforts


def compute_initial_state(state_dict):
    """At rest at the starting height; joints within 0.2 rad and 0.1 rad/s, so that no two episodes are the same."""
    n, device = state_dict["dof_pos"].shape[0], state_dict["dof_pos"].device
    dof_pos = state_dict["initial_dof_pos"] + torch_rand_float(-0.2, 0.2, (n, 8), device)
    return {
        "root_states": state_dict["initial_root_states"],
        "dof_pos": tensor_clamp(dof_pos, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
        "dof_vel": torch_rand_float(-0.1, 0.1, (n, 8), device),
    }
