"""Joint torques: IsaacGymEnvs' second control mode, `controlType: joint_tor`, with its observation of 26 numbers.

Seven torques, as fractions of the motors' greatest, and the gripper open or closed. A torque is two integrations away
from a position, so this is harder to learn: compare it with the human baseline and with 002_joint_targets.
"""
import torch

ACTION_DIM = 8


def compute_torque(action, state_dict):
    limits, fingers = state_dict["franka_effort_limits"], action[:, 7:]
    arm = action[:, :7] * limits[:7]
    return torch.cat((arm, torch.sign(fingers) * limits[7:]), dim=1)


def compute_observation(cubeA_quat, cubeA_pos, cubeA_to_cubeB_pos, eef_pos, eef_quat, q):
    return torch.cat((cubeA_quat, cubeA_pos, cubeA_to_cubeB_pos, eef_pos, eef_quat, q), dim=1)
