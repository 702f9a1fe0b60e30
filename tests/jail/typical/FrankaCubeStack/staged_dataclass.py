"""Reach, grasp, lift, align, stack: stages with a dataclass per stage."""
from dataclasses import dataclass
from typing import Callable, Dict, List

import torch


@dataclass
class Stage:
    name: str
    weight: float
    fn: Callable[[Dict[str, torch.Tensor]], torch.Tensor]

    def __call__(self, s):
        return self.weight * self.fn(s)


def reach(s):
    return 1.0 - torch.tanh(10.0 * torch.norm(s["cubeA_pos_relative"], dim=-1))


def lift(s):
    height = s["cubeA_pos"][:, 2] - s["table_height"] - s["cubeA_size"] / 2
    return (height > 0.04).float()


def align(s):
    goal = s["cubeA_to_cubeB_pos"].clone()
    goal[:, 2] += (s["cubeA_size"] + s["cubeB_size"]) / 2
    return (1.0 - torch.tanh(10.0 * torch.norm(goal, dim=-1))) * lift(s)


STAGES: List[Stage] = [Stage("reach", 0.1, reach), Stage("lift", 1.5, lift), Stage("align", 2.0, align)]


def compute_reward(state_dict):
    parts = {stage.name: stage(state_dict) for stage in STAGES}
    done = state_dict["stacked"] > 0.5
    total = torch.where(done, torch.full_like(parts["reach"], 16.0), sum(parts.values()))
    return total, {**parts, "stacked": done.float()}
