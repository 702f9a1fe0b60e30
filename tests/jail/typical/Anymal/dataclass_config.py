"""Velocity tracking with a dataclass that holds all weights."""
from __future__ import annotations

from dataclasses import dataclass, field, asdict
from typing import Dict, Tuple

import torch
from torch import Tensor

from isaacgym.torch_utils import quat_rotate_inverse


@dataclass(frozen=True)
class RewardConfig:
    """Weights and temperatures of the reward terms."""

    lin_vel_weight: float = 1.5
    ang_vel_weight: float = 0.75
    torque_weight: float = -2.0e-5
    orientation_weight: float = -0.5
    sigma: float = 0.25
    scales: Dict[str, float] = field(default_factory=lambda: {"z_vel": -2.0, "xy_ang_vel": -0.05})

    def __post_init__(self) -> None:
        if self.sigma <= 0:
            raise ValueError("sigma must be positive, got {}".format(self.sigma))


CFG = RewardConfig()


def _to_base_frame(state_dict: Dict[str, Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
    quat = state_dict["root_states"][:, 3:7]
    return (
        quat_rotate_inverse(quat, state_dict["root_states"][:, 7:10]),
        quat_rotate_inverse(quat, state_dict["root_states"][:, 10:13]),
        quat_rotate_inverse(quat, state_dict["gravity_vec"]),
    )


def compute_reward(state_dict: Dict[str, Tensor]) -> Tuple[Tensor, Dict[str, Tensor]]:
    lin_vel, ang_vel, gravity = _to_base_frame(state_dict)
    commands = state_dict["commands"]

    lin_err = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    ang_err = torch.square(commands[:, 2] - ang_vel[:, 2])
    terms = {
        "tracking_lin_vel": CFG.lin_vel_weight * torch.exp(-lin_err / CFG.sigma),
        "tracking_ang_vel": CFG.ang_vel_weight * torch.exp(-ang_err / CFG.sigma),
        "lin_vel_z": CFG.scales["z_vel"] * torch.square(lin_vel[:, 2]),
        "ang_vel_xy": CFG.scales["xy_ang_vel"] * torch.sum(torch.square(ang_vel[:, :2]), dim=1),
        "orientation": CFG.orientation_weight * torch.sum(torch.square(gravity[:, :2]), dim=1),
        "torques": CFG.torque_weight * torch.sum(torch.square(state_dict["torques"]), dim=1),
    }
    assert len(asdict(CFG)) == 6
    total = torch.stack(list(terms.values()), dim=0).sum(dim=0) * state_dict["dt"]
    return total, terms
