"""ANYmal on rough ground, the unshaped baseline: the task without shaping.

Its initial states, goals and terminal function also define the environment in which every candidate's fitness is
measured: so commands cover the task's whole range, and an episode ends only with a fall.
"""

import torch

from envcoder_bench.tasks.anymal.unshaped import compute_dof_target, compute_reward, compute_terminal
from envcoder_bench.tasks.anymal_terrain.human import compute_goal
from envcoder_bench.torch_utils import torch_rand_float

ACTION_DIM = 12


def compute_observation(state_dict):
    """179 numbers unscaled: base height, quaternion and world velocities, commands, joints, heights under the scan."""
    return torch.cat(
        (
            state_dict["root_states"][:, 2:],
            state_dict["commands"],
            state_dict["dof_pos"],
            state_dict["dof_vel"],
            state_dict["measured_heights"],
        ),
        dim=-1,
    )


def compute_initial_state(state_dict):
    """The default stance in the middle of the tile, within 0.5 m, 0.1 rad and 0.1 rad/s."""
    default_dof_pos, root_states = state_dict["default_dof_pos"], state_dict["initial_root_states"]
    n, device = default_dof_pos.shape[0], default_dof_pos.device
    position = root_states[:, :2] + torch_rand_float(-0.5, 0.5, (n, 2), device)
    return {
        "root_states": torch.cat((position, root_states[:, 2:]), dim=1),
        "dof_pos": default_dof_pos + torch_rand_float(-0.1, 0.1, (n, 12), device),
        "dof_vel": torch_rand_float(-0.1, 0.1, (n, 12), device),
    }
