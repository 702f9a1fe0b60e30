"""AllegroHand, the human baseline: the shaping of IsaacGymEnvs' AllegroHand task, its formulas and constants.

Source: IsaacGymEnvs, tasks/allegro_hand.py and cfg/task/AllegroHand.yaml (NVIDIA, BSD-3-Clause), with its 88
observations ("full_state"). The action is IsaacGymEnvs' too, which is the task's own: -1 and 1 are the ends of a
joint's range. One difference: a reached goal is replaced before the next observation, not after it.
"""

import math

import torch

from envcoder_bench.torch_utils import quat_conjugate, quat_mul, torch_rand_float, unscale


def compute_reward(state_dict):
    """Alignment with the goal orientation, closeness to its position, a bonus for each goal, small actions."""
    goal_dist = torch.norm(state_dict["object_pos"] - state_dict["goal_pos"], p=2, dim=-1)
    quat_diff = quat_mul(state_dict["object_rot"], quat_conjugate(state_dict["goal_rot"]))
    rot_dist = 2.0 * torch.asin(torch.clamp(torch.norm(quat_diff[:, 0:3], p=2, dim=-1), max=1.0))
    reached = (torch.abs(rot_dist) <= state_dict["success_tolerance"]).float()
    fallen = (goal_dist >= state_dict["fall_dist"]).float()
    components = {
        "distance": goal_dist * state_dict["dist_reward_scale"],
        "rotation": state_dict["rot_reward_scale"] / (torch.abs(rot_dist) + state_dict["rot_eps"]),
        "action": torch.sum(torch.square(state_dict["actions"]), dim=-1) * state_dict["action_penalty_scale"],
        "goal": reached * state_dict["reach_goal_bonus"],
        "fall": fallen * state_dict["fall_penalty"],
    }
    return sum(components.values()), components


def compute_observation(state_dict):
    """88 numbers: joints' angles 16, velocities 16 and torques 16, cube 13, goal 7, rotation between 4, action 16."""
    object_rot, goal_rot = state_dict["object_rot"], state_dict["goal_rot"]
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    return torch.cat(
        (
            unscale(state_dict["shadow_hand_dof_pos"], lower, upper),
            state_dict["shadow_hand_dof_vel"] * state_dict["vel_obs_scale"],
            state_dict["dof_force_tensor"] * state_dict["force_torque_obs_scale"],
            state_dict["object_pose"],
            state_dict["object_linvel"],
            state_dict["object_angvel"] * state_dict["vel_obs_scale"],
            state_dict["goal_pose"],
            quat_mul(object_rot, quat_conjugate(goal_rot)),
            state_dict["actions"],
        ),
        dim=-1,
    )


def compute_terminal(state_dict):
    """End where the cube has fallen: it is far from the goal's position."""
    return torch.norm(state_dict["object_pos"] - state_dict["goal_pos"], p=2, dim=-1) >= state_dict["fall_dist"]


def compute_initial_state(state_dict):
    """The cube above the fingers within 1 cm, in a random orientation; joints in a fifth of their ranges."""
    start, default_pos = state_dict["object_init_state"], state_dict["shadow_hand_dof_default_pos"]
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    n, device = start.shape[0], start.device
    shift = state_dict["reset_position_noise"] * torch_rand_float(-1.0, 1.0, (n, 3), device)
    delta = lower - default_pos + (upper - lower) * 0.5 * (torch_rand_float(-1.0, 1.0, (n, 16), device) + 1.0)
    speed = state_dict["reset_dof_vel_noise"] * torch_rand_float(-1.0, 1.0, (n, 16), device)
    return {
        "object_state": torch.cat((start[:, 0:3] + shift, randomize_rotation(start), start[:, 7:13]), dim=-1),
        "dof_pos": default_pos + state_dict["reset_dof_pos_noise"] * delta,
        "dof_vel": state_dict["shadow_hand_dof_default_vel"] + speed,
    }


def compute_goal(state_dict):
    """A random orientation; the position does not change."""
    return {"goal_rot": randomize_rotation(state_dict["goal_rot"])}


def randomize_rotation(like):
    """Quaternions, one for each row of ``like``: rotations about y, then about x, by up to half a turn either way."""
    half = 0.5 * math.pi * torch_rand_float(-1.0, 1.0, (like.shape[0], 2), like.device)
    (sin_x, sin_y), (cos_x, cos_y) = torch.sin(half).unbind(dim=1), torch.cos(half).unbind(dim=1)
    return torch.stack((sin_x * cos_y, cos_x * sin_y, sin_x * sin_y, cos_x * cos_y), dim=-1)
