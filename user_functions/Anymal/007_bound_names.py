"""A reward in the form that IsaacGymEnvs' tasks and language models write: named tensors in, a script, a dict out.

Parameters are bound by name to the keys of the state; `float` in the signature makes a constant a Python number. Imports
of IsaacGymEnvs' tensor helpers work without Isaac Gym.
"""
import torch
from torch import Tensor
from typing import Dict, Tuple
from isaacgymenvs.utils.torch_jit_utils import quat_rotate_inverse


@torch.jit.script
def compute_reward(
    root_states: Tensor, commands: Tensor, dof_pos: Tensor, default_dof_pos: Tensor, torques: Tensor, dt: float
) -> Tuple[Tensor, Dict[str, Tensor]]:
    base_quat = root_states[:, 3:7]
    base_lin_vel = quat_rotate_inverse(base_quat, root_states[:, 7:10])
    base_ang_vel = quat_rotate_inverse(base_quat, root_states[:, 10:13])

    # temperature: which error, squared, still earns 37 % of the reward
    lin_vel_temperature = 0.25
    ang_vel_temperature = 0.25
    stance_temperature = 2.0

    lin_vel_error = torch.sum(torch.square(commands[:, :2] - base_lin_vel[:, :2]), dim=-1)
    lin_vel_reward = torch.exp(-lin_vel_error / lin_vel_temperature)
    ang_vel_error = torch.square(commands[:, 2] - base_ang_vel[:, 2])
    ang_vel_reward = 0.5 * torch.exp(-ang_vel_error / ang_vel_temperature)
    stance_error = torch.sum(torch.square(dof_pos - default_dof_pos), dim=-1)
    stance_reward = 0.2 * torch.exp(-stance_error / stance_temperature)
    torque_penalty = 0.000025 * torch.sum(torch.square(torques), dim=-1)

    total = torch.clamp(lin_vel_reward + ang_vel_reward + stance_reward - torque_penalty, min=0.0) * dt
    components = {
        "lin_vel": lin_vel_reward,
        "ang_vel": ang_vel_reward,
        "stance": stance_reward,
        "torque": torque_penalty,
    }
    return total, components
