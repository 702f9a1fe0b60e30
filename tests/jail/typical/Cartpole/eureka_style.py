from typing import Tuple, Dict
import math
import torch
from torch import Tensor


@torch.jit.script
def compute_reward(pole_angle: torch.Tensor, pole_vel: torch.Tensor, cart_pos: torch.Tensor,
                   cart_vel: torch.Tensor) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
    # Temperatures of the transformed components
    angle_temp: float = 0.1
    position_temp: float = 1.0
    velocity_temp: float = 2.0

    angle_reward = torch.exp(-torch.abs(pole_angle) / angle_temp)
    position_reward = torch.exp(-torch.square(cart_pos) / position_temp)
    velocity_penalty = 1.0 - torch.exp(-(torch.abs(cart_vel) + torch.abs(pole_vel)) / velocity_temp)

    total_reward = 2.0 * angle_reward + 0.5 * position_reward - 0.1 * velocity_penalty
    reward_components: Dict[str, torch.Tensor] = {
        "angle_reward": angle_reward,
        "position_reward": position_reward,
        "velocity_penalty": velocity_penalty,
    }
    return total_reward, reward_components
