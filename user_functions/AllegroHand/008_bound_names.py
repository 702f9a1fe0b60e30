"""A reward in the form that IsaacGymEnvs' tasks and language models write: named tensors in, a script, a dict out.

Parameters are bound by name to the keys of the state; `float` in the signature makes a constant a Python number.
"""
import torch
from torch import Tensor
from typing import Dict, Tuple
from isaacgymenvs.utils.torch_jit_utils import quat_conjugate, quat_mul


@torch.jit.script
def compute_reward(
    object_rot: Tensor,
    goal_rot: Tensor,
    object_pos: Tensor,
    goal_pos: Tensor,
    fingertip_pos: Tensor,
    object_angvel: Tensor,
    success_tolerance: float,
    reach_goal_bonus: float,
) -> Tuple[Tensor, Dict[str, Tensor]]:
    apart = quat_mul(object_rot, quat_conjugate(goal_rot))
    angle = 2.0 * torch.asin(torch.clamp(torch.norm(apart[:, 0:3], p=2, dim=-1), max=1.0))

    # temperature: the angle, rad, at which the reward for alignment has fallen to 37 % of its most
    angle_temperature = 0.5
    rotation_reward = 4.0 * torch.exp(-angle / angle_temperature)
    distance_penalty = 10.0 * torch.norm(object_pos - goal_pos, p=2, dim=-1)
    touch_reward = 0.5 * torch.exp(-torch.norm(fingertip_pos - object_pos.unsqueeze(1), p=2, dim=-1) / 0.05).sum(dim=1)
    spin_penalty = 0.02 * torch.clamp(torch.norm(object_angvel, p=2, dim=-1) - 4.0, min=0.0)
    success_bonus = reach_goal_bonus * (angle <= success_tolerance).float()

    total = rotation_reward - distance_penalty + touch_reward - spin_penalty + success_bonus
    components = {
        "rotation": rotation_reward,
        "distance": distance_penalty,
        "touch": touch_reward,
        "spin": spin_penalty,
        "goal": success_bonus,
    }
    return total, components
