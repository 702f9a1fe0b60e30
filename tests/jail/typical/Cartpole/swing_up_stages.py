"""Curriculum by stages: swing up, slow down, balance."""
import math
from enum import IntEnum, auto

import torch


class Stage(IntEnum):
    SWING = auto()
    SLOW = auto()
    BALANCE = auto()


def stage_of(angle: torch.Tensor, vel: torch.Tensor) -> torch.Tensor:
    stage = torch.full_like(angle, float(Stage.SWING))
    stage = torch.where(angle.abs() < math.pi / 4, torch.full_like(stage, float(Stage.SLOW)), stage)
    return torch.where((angle.abs() < 0.2) & (vel.abs() < 1.0), torch.full_like(stage, float(Stage.BALANCE)), stage)


def compute_reward(state_dict):
    angle = torch.atan2(torch.sin(state_dict["pole_angle"]), torch.cos(state_dict["pole_angle"]))
    vel = state_dict["pole_vel"]
    stage = stage_of(angle, vel)
    rewards = {
        Stage.SWING: 0.5 * (1.0 + torch.cos(angle)),
        Stage.SLOW: 1.0 - 0.05 * vel.abs(),
        Stage.BALANCE: 2.0 - angle.abs() - 0.1 * state_dict["cart_pos"].abs(),
    }
    total = torch.zeros_like(angle)
    for s, r in rewards.items():
        total += torch.where(stage == s, r, torch.zeros_like(r))
    return total, {s.name.lower(): r for s, r in rewards.items()}
