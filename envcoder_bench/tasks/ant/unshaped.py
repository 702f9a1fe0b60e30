"""The Ant, the unshaped baseline: the task without shaping.

Its initial states and terminal function also define the environment in which every candidate's fitness is measured: an
episode ends only with a fall.
"""

import torch

from envcoder_bench.tasks.ant.human import compute_initial_state, compute_terminal

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
