"""FrankaCubeStack, the unshaped baseline: the task without shaping.

Its initial states also define the environment in which every candidate's fitness is measured. Only the time-out ends an
episode; an early success counts.
"""

import torch

from envcoder_bench.tasks.franka_cube_stack.human import compute_initial_state

ACTION_DIM = 8


def compute_reward(just_stacked):
    """Sparse success: 1 on the step on which cube A has come to rest on cube B, once in an episode."""
    return just_stacked


def compute_observation(dof_pos, dof_vel, eef_pos, eef_quat, cubeA_state, cubeB_state):
    """51 numbers unscaled: joints, hand, and both cubes with their velocities."""
    return torch.cat((dof_pos, dof_vel, eef_pos, eef_quat, cubeA_state, cubeB_state), dim=-1)


def compute_torque(action, franka_effort_limits):
    """The action is the motors' efforts, as fractions of their greatest: 7 joints, then both fingers."""
    return torch.cat((action, action[:, 7:]), dim=-1) * franka_effort_limits
