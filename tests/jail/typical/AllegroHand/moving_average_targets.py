"""Absolute joint targets with a moving average."""
import torch
from isaacgym.torch_utils import scale, tensor_clamp

ACTION_DIM = 16


def compute_dof_target(action, state_dict):
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    targets = scale(action, lower, upper)
    alpha = state_dict["act_moving_average"].item()
    targets = alpha * targets + (1.0 - alpha) * state_dict["prev_targets"]
    return tensor_clamp(targets, lower, upper)
