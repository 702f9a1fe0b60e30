"""A reward in the form that IsaacGymEnvs' tasks and language models write: named tensors in, a script, a dict out.

Parameters are bound by name to the keys of the state; `float` in the signature makes a constant a Python number.
"""
import torch
from torch import Tensor
from typing import Dict, Tuple


@torch.jit.script
def compute_reward(
    root_states: Tensor,
    targets: Tensor,
    up_vec: Tensor,
    heading_vec: Tensor,
    actions: Tensor,
    dof_vel: Tensor,
    dof_vel_scale: float,
    termination_height: float,
    death_cost: float,
) -> Tuple[Tensor, Dict[str, Tensor]]:
    to_target = targets[:, 0:2] - root_states[:, 0:2]
    direction = to_target / torch.norm(to_target, p=2, dim=-1, keepdim=True)
    speed = torch.sum(root_states[:, 7:9] * direction, dim=-1)
    facing = torch.sum(heading_vec[:, 0:2] * direction, dim=-1)

    # temperature: the speed, m/s, at which the reward for speed is at 63 % of its most
    speed_temperature = 4.0
    speed_reward = 5.0 * (1.0 - torch.exp(-torch.clamp(speed, min=0.0) / speed_temperature))
    upright_reward = 0.3 * torch.clamp(up_vec[:, 2], min=0.0)
    facing_reward = 0.3 * facing
    energy_penalty = 0.05 * torch.sum(torch.abs(actions * dof_vel * dof_vel_scale), dim=-1)

    total = speed_reward + upright_reward + facing_reward - energy_penalty
    total = torch.where(root_states[:, 2] < termination_height, torch.full_like(total, death_cost), total)
    components = {
        "speed": speed_reward,
        "upright": upright_reward,
        "facing": facing_reward,
        "energy": energy_penalty,
    }
    return total, components
