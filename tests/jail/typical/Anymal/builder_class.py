"""Accumulates terms in a small builder object that lives for one call."""
from typing import Dict, List, Optional

import torch
from torch import Tensor


class RewardBuilder:
    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.total: Tensor = torch.zeros(num_envs, device=device)
        self.terms: Dict[str, Tensor] = {}
        self._order: List[str] = []

    def add(self, name: str, value: Tensor, weight: float = 1.0, clip: Optional[float] = None) -> "RewardBuilder":
        if clip is not None:
            value = torch.clamp(value, -clip, clip)
        scaled = weight * value
        self.terms[name] = scaled
        self._order.append(name)
        self.total = self.total + scaled
        return self

    def build(self):
        return self.total, {name: self.terms[name] for name in self._order}


def compute_reward(state_dict: Dict[str, Tensor]):
    root_states = state_dict["root_states"]
    builder = RewardBuilder(root_states.shape[0], root_states.device)
    velocity_error = torch.norm(state_dict["commands"][:, :2] - root_states[:, 7:9], dim=-1)
    (
        builder.add("velocity", torch.exp(-2.0 * velocity_error), weight=1.2)
        .add("yaw", -torch.abs(state_dict["commands"][:, 2] - root_states[:, 12]), weight=0.3, clip=1.5)
        .add("energy", torch.sum(torch.abs(state_dict["torques"] * state_dict["dof_vel"]), dim=-1), weight=-1e-4)
        .add("posture", -torch.mean((state_dict["dof_pos"] - state_dict["default_dof_pos"]) ** 2, dim=-1), 0.5)
    )
    return builder.build()
