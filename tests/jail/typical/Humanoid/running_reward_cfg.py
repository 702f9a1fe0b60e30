"""Humanoid running: configuration object with __init__ defaults and a method that applies them."""
import torch
from typing import Any, Dict, Tuple


class HumanoidRewardConfig:
    def __init__(self, **overrides: Any) -> None:
        self.speed_weight = 2.0
        self.upright_weight = 0.5
        self.energy_weight = 0.02
        self.alive_bonus = 1.0
        for key, value in overrides.items():
            if not hasattr(self, key):
                raise AttributeError(f"{type(self).__name__} has no option {key!r}")
            setattr(self, key, value)


config = HumanoidRewardConfig(speed_weight=2.5)


def compute_reward(state_dict: Dict[str, torch.Tensor]) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
    """Reward fast, upright running."""
    root_states = state_dict["root_states"]
    forward_velocity = root_states[:, 7]
    upright = state_dict["up_vec"][:, 2]
    energy = torch.sum(torch.abs(state_dict["actions"] * state_dict["dof_vel"]), dim=-1)

    speed = config.speed_weight * torch.tanh(forward_velocity / 4.0) * 4.0
    posture = config.upright_weight * torch.clamp(upright, 0.0, 1.0)
    cost = config.energy_weight * energy
    alive = torch.where(root_states[:, 2] > 0.8, config.alive_bonus, 0.0)
    total = speed + posture + alive - cost
    return total, {"speed": speed, "posture": posture, "alive": alive, "cost": -cost}
