"""IsaacGymEnvs' ant reward, ported with its structure: a scripted helper and a thin wrapper."""
import torch
from torch import Tensor
from typing import Dict, Tuple

from isaacgymenvs.utils.torch_jit_utils import *


@torch.jit.script
def compute_ant_reward(
    up_proj, heading_proj, potentials, prev_potentials, actions, dof_vel, height,
    up_weight, heading_weight, actions_cost_scale, energy_cost_scale, termination_height, death_cost
):
    # type: (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, float, float, float, float, float) -> Tensor
    heading_weight_tensor = torch.ones_like(heading_proj) * heading_weight
    heading_reward = torch.where(heading_proj > 0.8, heading_weight_tensor, heading_weight * heading_proj / 0.8)
    up_reward = torch.zeros_like(heading_reward)
    up_reward = torch.where(up_proj > 0.93, up_reward + up_weight, up_reward)
    actions_cost = torch.sum(actions ** 2, dim=-1)
    electricity_cost = torch.sum(torch.abs(actions * dof_vel), dim=-1)
    alive_reward = torch.ones_like(potentials) * 0.5
    progress_reward = potentials - prev_potentials
    total_reward = progress_reward + alive_reward + up_reward + heading_reward - \
        actions_cost_scale * actions_cost - energy_cost_scale * electricity_cost
    total_reward = torch.where(height < termination_height, torch.ones_like(total_reward) * death_cost, total_reward)
    return total_reward


def compute_reward(state_dict):
    torso_quat, up_proj, heading_proj, up_vec, heading_vec = compute_heading_and_up(
        state_dict["root_states"][:, 3:7], state_dict["inv_start_rot"],
        state_dict["targets"] - state_dict["root_states"][:, 0:3],
        state_dict["basis_vec0"], state_dict["basis_vec1"], 2)
    return compute_ant_reward(
        up_proj, heading_proj, state_dict["potentials"], state_dict["prev_potentials"], state_dict["actions"],
        state_dict["dof_vel"], state_dict["root_states"][:, 2],
        float(state_dict["up_weight"]), float(state_dict["heading_weight"]), float(state_dict["actions_cost_scale"]),
        float(state_dict["energy_cost_scale"]), float(state_dict["termination_height"]), float(state_dict["death_cost"]))
