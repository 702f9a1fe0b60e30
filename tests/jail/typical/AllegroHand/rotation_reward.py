"""Rotation distance as in DeXtreme, with a success bonus."""
import torch
from torch import Tensor
from typing import Dict, Tuple
from isaacgymenvs.utils.torch_jit_utils import quat_mul, quat_conjugate

DIST_SCALE, ROT_SCALE, ROT_EPS = -10.0, 1.0, 0.1


@torch.jit.script
def rotation_distance(object_rot: Tensor, target_rot: Tensor) -> Tensor:
    quat_diff = quat_mul(object_rot, quat_conjugate(target_rot))
    return 2.0 * torch.asin(torch.clamp(torch.norm(quat_diff[:, 0:3], p=2, dim=-1), max=1.0))


def compute_reward(object_pos, object_rot, goal_pos, goal_rot, actions, success_tolerance, reach_goal_bonus,
                   fall_dist, fall_penalty) -> Tuple[Tensor, Dict[str, Tensor]]:
    goal_dist = torch.norm(object_pos - goal_pos, p=2, dim=-1)
    rot_dist = rotation_distance(object_rot, goal_rot)
    dist_rew = goal_dist * DIST_SCALE
    rot_rew = 1.0 / (torch.abs(rot_dist) + ROT_EPS) * ROT_SCALE
    action_penalty = torch.sum(actions ** 2, dim=-1)
    reward = dist_rew + rot_rew - 0.0002 * action_penalty
    reward = torch.where(torch.abs(rot_dist) <= success_tolerance, reward + reach_goal_bonus, reward)
    reward = torch.where(goal_dist >= fall_dist, reward + fall_penalty, reward)
    return reward, {"dist_rew": dist_rew, "rot_rew": rot_rew, "action_penalty": -0.0002 * action_penalty}
