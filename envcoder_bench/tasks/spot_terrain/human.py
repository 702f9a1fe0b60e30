"""Spot on rough ground, the human baseline, with the reward of AnymalTerrain's.

The observation is that of Isaac Lab's rough terrain tasks, so that other programs can run policies: no scales, joint
angles from the default stance, and the height scan at the end. The action is the task's own: joint position target =
default_dof_pos + actionScale * action.
"""

import torch

from envcoder_bench.tasks.anymal_terrain.human import compute_goal, compute_reward, compute_terminal
from envcoder_bench.torch_utils import quat_rotate_inverse, torch_rand_float


def compute_observation(state_dict):
    """235 numbers: base velocities 6, gravity 3, commands 3, joint angles and velocities 24, action 12, heights 187."""
    root_states = state_dict["root_states"]
    base_quat = root_states[:, 3:7]
    return torch.cat(
        (
            quat_rotate_inverse(base_quat, root_states[:, 7:10]),
            quat_rotate_inverse(base_quat, root_states[:, 10:13]),
            quat_rotate_inverse(base_quat, state_dict["gravity_vec"]),
            state_dict["commands"][:, :3],
            state_dict["dof_pos"] - state_dict["default_dof_pos"],
            state_dict["dof_vel"],
            state_dict["actions"],
            torch.clamp(root_states[:, 2:3] - state_dict["measured_heights"] - 0.5, -1.0, 1.0),
        ),
        dim=-1,
    )


def compute_initial_state(state_dict):
    """Base at rest within 0.5 m of the tile's middle; joint angles 0.8 to 1.2 times the default stance."""
    default_dof_pos, root_states = state_dict["default_dof_pos"], state_dict["initial_root_states"]
    n, device = default_dof_pos.shape[0], default_dof_pos.device
    position = root_states[:, :2] + torch_rand_float(-0.5, 0.5, (n, 2), device)
    return {
        "root_states": torch.cat((position, root_states[:, 2:]), dim=1),
        "dof_pos": default_dof_pos * torch_rand_float(0.8, 1.2, (n, 12), device),
        "dof_vel": torch_rand_float(-0.1, 0.1, (n, 12), device),
    }
