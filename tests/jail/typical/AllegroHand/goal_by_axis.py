"""Random goal rotations about one axis at a time, isaacgym helpers."""
import torch
import numpy as np
from isaacgym.torch_utils import torch_rand_float, quat_from_angle_axis


def compute_goal(state_dict):
    rot = state_dict["goal_rot"]
    n, device = rot.shape[0], rot.device
    angle = torch_rand_float(-np.pi, np.pi, (n, 1), device=device).squeeze(-1)
    z = torch.tensor([0.0, 0.0, 1.0], device=device).repeat((n, 1))
    return {"goal_rot": quat_from_angle_axis(angle, z), "goal_pos": state_dict["goal_pos"].clone()}
