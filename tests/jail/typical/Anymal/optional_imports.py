"""Falls back to local helpers where Isaac Gym or pytorch3d are not installed."""
import math

import torch

try:
    from pytorch3d.transforms import quaternion_to_matrix  # noqa: F401
    HAS_PYTORCH3D = True
except ImportError:
    HAS_PYTORCH3D = False

try:
    import isaaclab.utils.math as math_utils
except (ImportError, ModuleNotFoundError):
    math_utils = None

try:
    from isaacgym.torch_utils import quat_rotate_inverse
except ImportError:
    def quat_rotate_inverse(q, v):
        q_w, q_vec = q[:, 3:4], q[:, :3]
        a = v * (2.0 * q_w ** 2 - 1.0)
        b = torch.cross(q_vec, v, dim=-1) * q_w * 2.0
        c = q_vec * torch.sum(q_vec * v, dim=-1, keepdim=True) * 2.0
        return a - b + c


def wrap_to_pi(angles):
    angles = angles % (2 * math.pi)
    return angles - 2 * math.pi * (angles > math.pi).float()


def compute_reward(state_dict):
    if HAS_PYTORCH3D or math_utils is not None:
        raise RuntimeError("this file is for machines without pytorch3d")
    quat = state_dict["root_states"][:, 3:7]
    lin_vel = quat_rotate_inverse(quat, state_dict["root_states"][:, 7:10])
    yaw_error = wrap_to_pi(state_dict["commands"][:, 2] - state_dict["root_states"][:, 12])
    reward = torch.exp(-torch.sum((state_dict["commands"][:, :2] - lin_vel[:, :2]) ** 2, dim=-1) / 0.25)
    return reward - 0.05 * yaw_error ** 2
