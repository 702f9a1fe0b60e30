"""Rotation matrices of hand and cubes instead of quaternions."""
from typing import Tuple

import torch


def quat_to_rot6d(q: torch.Tensor) -> torch.Tensor:
    """First two columns of the rotation matrix of xyzw quaternions."""
    x, y, z, w = q.unbind(-1)
    first = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], dim=-1)
    second = torch.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)], dim=-1)
    return torch.cat([first, second], dim=-1)


def relative(a: torch.Tensor, b: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    diff = a - b
    return diff, torch.linalg.vector_norm(diff, dim=-1, keepdim=True)


def compute_observation(state_dict):
    rot = quat_to_rot6d(state_dict["eef_quat"])
    cube = quat_to_rot6d(state_dict["cubeA_quat"])
    to_a, dist_a = relative(state_dict["cubeA_pos"], state_dict["eef_pos"])
    to_b, dist_b = relative(state_dict["cubeB_pos"], state_dict["cubeA_pos"])
    return torch.hstack((rot, cube, to_a, dist_a, to_b, dist_b, state_dict["q_gripper"], state_dict["eef_vel"],
                         torch.einsum("nij,nj->ni", state_dict["jacobian"], state_dict["dof_vel"][:, :7])))
