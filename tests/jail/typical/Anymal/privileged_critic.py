"""Blind policy; the critic sees velocity, forces under the feet and the torques."""
from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor


def _in_body(quat: Tensor, vec: Tensor) -> Tensor:
    xyz, w = quat[:, :3], quat[:, 3:4]
    t = 2.0 * torch.cross(xyz, vec, dim=-1)
    return vec - w * t + torch.cross(xyz, t, dim=-1)


def compute_observation(state_dict: Dict[str, Tensor]) -> Tensor:
    root = state_dict["root_states"]
    gravity = torch.zeros_like(root[:, :3])
    gravity[:, 2] = -1.0
    joints = [state_dict["dof_pos"] - state_dict["default_dof_pos"], 0.05 * state_dict["dof_vel"]]
    return torch.cat([_in_body(root[:, 3:7], gravity), state_dict["commands"], *joints, state_dict["actions"]], dim=-1)


def compute_critic_observation(state_dict: Dict[str, Tensor]) -> Tensor:
    root = state_dict["root_states"]
    feet = state_dict["contact_forces"][:, state_dict["feet_indices"], 2]
    privileged = [
        _in_body(root[:, 3:7], root[:, 7:10]),
        torch.log1p(feet.clamp(min=0.0)),
        state_dict["torques"] / 80.0,
    ]
    return torch.cat([compute_observation(state_dict), *privileged], dim=-1)
