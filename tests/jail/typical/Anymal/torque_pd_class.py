"""A PD controller object with gains per joint."""
from __future__ import annotations

import torch


class PDController:
    __slots__ = ("kp", "kd", "limit", "scale")

    def __init__(self, kp: float, kd: float, limit: float = 80.0, scale: float = 0.5):
        self.kp, self.kd, self.limit, self.scale = kp, kd, limit, scale

    def __call__(self, action: torch.Tensor, q: torch.Tensor, dq: torch.Tensor, q0: torch.Tensor) -> torch.Tensor:
        target = q0 + self.scale * action
        tau = self.kp * (target - q) - self.kd * dq
        return tau.clamp(-self.limit, self.limit)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(kp={self.kp}, kd={self.kd})"


controller = PDController(kp=85.0, kd=2.0)
ACTION_DIM = 12
print(f"Using {controller}")


def compute_torque(action, state_dict):
    return controller(action, state_dict["dof_pos"], state_dict["dof_vel"], state_dict["default_dof_pos"])
