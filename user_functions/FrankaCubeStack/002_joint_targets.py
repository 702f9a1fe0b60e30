"""Joint position targets: each of the seven joints is sent up to 0.1 rad from where it is, the fingers open or closed.

The model's own drives (400 N m/rad, 80 N m s/rad) do the rest. Without operational space control the policy must find
out how joints move the hand, so it also sees the joints.
"""
import torch

ACTION_DIM = 8


def compute_dof_target(action, state_dict):
    arm = state_dict["q"][:, :7] + 0.1 * action[:, :7]
    lower, upper = state_dict["franka_dof_lower_limits"], state_dict["franka_dof_upper_limits"]
    arm = torch.clamp(arm, lower[:7], upper[:7])
    return torch.cat((arm, torch.where(action[:, 7:] >= 0.0, upper[7:], lower[7:])), dim=1)


def compute_observation(cubeA_quat, cubeA_pos, cubeA_to_cubeB_pos, eef_pos, eef_quat, q, dof_vel):
    return torch.cat((cubeA_quat, cubeA_pos, cubeA_to_cubeB_pos, eef_pos, eef_quat, q, 0.2 * dof_vel), dim=1)
