"""Phases by a Flag enum and bitwise operations."""
from enum import Flag, auto
import torch


class Phase(Flag):
    NONE = 0
    NEAR = auto()
    GRASPED = auto()
    LIFTED = auto()
    READY = NEAR | GRASPED


VALUES = {Phase.NEAR: 0.5, Phase.GRASPED: 1.0, Phase.LIFTED: 2.0}


def compute_reward(eef_pos, cubeA_pos, q_gripper, cubeA_size, table_height, cubeA_to_cubeB_pos):
    distance = torch.linalg.norm(eef_pos - cubeA_pos, dim=-1)
    near = distance < 0.05
    grasped = near & (q_gripper.sum(dim=-1) < cubeA_size + 0.01)
    lifted = grasped & (cubeA_pos[:, 2] > table_height + cubeA_size)
    masks = {Phase.NEAR: near, Phase.GRASPED: grasped, Phase.LIFTED: lifted}
    reward = torch.exp(-5.0 * distance)
    for phase, mask in masks.items():
        if phase in (Phase.READY | Phase.LIFTED):
            reward = reward + VALUES[phase] * mask
    reward = reward + lifted * torch.exp(-4.0 * torch.norm(cubeA_to_cubeB_pos[:, :2], dim=-1))
    return reward, {phase.name: mask.float() for phase, mask in masks.items()}
