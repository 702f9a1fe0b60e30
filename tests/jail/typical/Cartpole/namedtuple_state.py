"""Unpacks the state into a NamedTuple first."""
from typing import NamedTuple

import torch


class CartPoleState(NamedTuple):
    x: torch.Tensor
    x_dot: torch.Tensor
    theta: torch.Tensor
    theta_dot: torch.Tensor

    @classmethod
    def from_dict(cls, state_dict):
        return cls(
            x=state_dict["cart_pos"],
            x_dot=state_dict["cart_vel"],
            theta=state_dict["pole_angle"],
            theta_dot=state_dict["pole_vel"],
        )

    @property
    def energy(self) -> torch.Tensor:
        kinetic = 0.5 * self.x_dot ** 2 + 0.5 * 0.25 * self.theta_dot ** 2
        return kinetic + 9.81 * 0.5 * torch.cos(self.theta)


def compute_reward(state_dict):
    s = CartPoleState.from_dict(state_dict)
    upright = torch.cos(s.theta)
    centered = torch.exp(-s.x ** 2)
    target_energy = 9.81 * 0.5
    energy_error = torch.abs(s.energy - target_energy)
    return upright + 0.3 * centered - 0.02 * energy_error, s._replace(x=centered)._asdict()
