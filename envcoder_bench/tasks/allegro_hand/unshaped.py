"""AllegroHand, the unshaped baseline: the task without shaping.

Its initial states, goals and terminal function also define the environment in which every candidate's fitness is
measured: they are IsaacGymEnvs' (tasks/allegro_hand.py), as in human.py, which has the source.
"""

import torch

from envcoder_bench.tasks.allegro_hand.human import compute_goal, compute_terminal, randomize_rotation
from envcoder_bench.torch_utils import scale, torch_rand_float

ACTION_DIM = 16


def compute_reward(state_dict):
    """Sparse success: the bonus on a step that reaches the goal, else 0."""
    alike = torch.abs(torch.sum(state_dict["object_rot"] * state_dict["goal_rot"], dim=-1))  # cos of half the angle
    reached = alike >= torch.cos(0.5 * state_dict["success_tolerance"])
    return reached.float() * state_dict["reach_goal_bonus"]


def compute_observation(state_dict):
    """65 numbers unscaled: joints' angles, velocities and torques, the cube, the goal's rotation."""
    keys = ("shadow_hand_dof_pos", "shadow_hand_dof_vel", "dof_force_tensor", "object_state", "goal_rot")
    return torch.cat([state_dict[key] for key in keys], dim=-1)


def compute_dof_target(action, state_dict):
    """The action is the joints' position target; -1 and 1 are the ends of a joint's range."""
    return scale(action, state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"])


def compute_initial_state(state_dict):
    """The cube above the fingers within 1 cm, in a random orientation; joints in a fifth of their ranges."""
    start = state_dict["object_init_state"]
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    n, device = start.shape[0], start.device
    shift = state_dict["reset_position_noise"] * torch_rand_float(-1.0, 1.0, (n, 3), device)
    share = state_dict["reset_dof_pos_noise"] * torch_rand_float(0.0, 1.0, (n, 16), device)
    speed = state_dict["reset_dof_vel_noise"] * torch_rand_float(-1.0, 1.0, (n, 16), device)
    return {
        "object_state": torch.cat((start[:, 0:3] + shift, randomize_rotation(start), start[:, 7:13]), dim=-1),
        "dof_pos": state_dict["reset_dof_pos_noise"] * lower + share * (upper - lower),
        "dof_vel": speed,
    }
