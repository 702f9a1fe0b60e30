"""ANYmal on rough ground, the human baseline: the shaping of IsaacGymEnvs' AnymalTerrain task.

Source: IsaacGymEnvs, tasks/anymal_terrain.py and cfg/task/AnymalTerrain.yaml (NVIDIA, BSD-3-Clause). Differences: all
terms but the two of velocity tracking count a tenth, because with the whole ones policies learned to stand still
(docs/eval_policies.md), and time in the air counts after 0.06 s. The reward sees the state after the physics step it
evaluates; observations have no noise, robots are not pushed, and friction is not random. The action is IsaacGymEnvs',
which is the task's own.
"""

import torch

from envcoder_bench.torch_utils import quat_rotate_inverse, torch_rand_float


def compute_reward(state_dict):
    """Track the commanded velocities in long calm strides; scales are per second, hence times dt."""
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    forces = state_dict["contact_forces"]
    base_lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    base_ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - base_lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - base_ang_vel[:, 2])
    knees = torch.norm(forces[:, state_dict["knee_indices"], :], p=2, dim=2) > 1.0
    air_time = state_dict["feet_air_time"]
    # less than 0.06 s in the air is a foot that trembles on the ground
    lands = (air_time > 0.05) & (forces[:, state_dict["feet_indices"], 2] > 1.0)
    walks = torch.norm(commands[:, :2], p=2, dim=1) > 0.1

    components = {
        "lin_vel_xy": 1.0 * dt * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 0.5 * dt * torch.exp(-ang_vel_error / 0.25),
        "lin_vel_z": -0.4 * dt * torch.square(base_lin_vel[:, 2]),
        "ang_vel_xy": -0.005 * dt * torch.sum(torch.square(base_ang_vel[:, :2]), dim=1),
        "torque": -0.000002 * dt * torch.sum(torch.square(state_dict["torques"]), dim=1),
        "joint_acc": -0.00005 * dt * torch.sum(torch.square(state_dict["last_dof_vel"] - state_dict["dof_vel"]), dim=1),
        "air_time": 0.1 * dt * torch.sum((air_time - 0.5) * lands, dim=1) * walks,
        "collision": -0.025 * dt * torch.sum(knees, dim=1),
        "action_rate": -0.001 * dt * torch.sum(torch.square(state_dict["last_actions"] - state_dict["actions"]), dim=1),
    }
    total = sum(components.values(), torch.zeros_like(lin_vel_error))
    return torch.clamp(total, min=0.0), components


def compute_observation(state_dict):
    """188 numbers: base velocities 6, gravity 3, commands 3, joint angles and velocities 24, heights 140, action 12."""
    root_states, commands = state_dict["root_states"], state_dict["commands"]
    lin_vel_scale, ang_vel_scale = state_dict["lin_vel_scale"], state_dict["ang_vel_scale"]
    base_quat = root_states[:, 3:7]
    heights = torch.clamp(root_states[:, 2:3] - 0.5 - state_dict["measured_heights"], -1.0, 1.0)
    return torch.cat(
        (
            quat_rotate_inverse(base_quat, root_states[:, 7:10]) * lin_vel_scale,
            quat_rotate_inverse(base_quat, root_states[:, 10:13]) * ang_vel_scale,
            quat_rotate_inverse(base_quat, state_dict["gravity_vec"]),
            commands[:, :2] * lin_vel_scale,
            commands[:, 2:3] * ang_vel_scale,
            state_dict["dof_pos"] * state_dict["dof_pos_scale"],
            state_dict["dof_vel"] * state_dict["dof_vel_scale"],
            heights * state_dict["height_meas_scale"],
            state_dict["actions"],
        ),
        dim=-1,
    )


def compute_terminal(state_dict):
    """End where the base touches with more than 1 N; knees may touch."""
    return torch.norm(state_dict["contact_forces"][:, state_dict["base_index"], :], p=2, dim=1) > 1.0


def compute_initial_state(state_dict):
    """Base at rest within 0.5 m of the tile's middle; joint angles 0.5 to 1.5 times the default stance."""
    default_dof_pos, root_states = state_dict["default_dof_pos"], state_dict["initial_root_states"]
    n, device = default_dof_pos.shape[0], default_dof_pos.device
    position = root_states[:, :2] + torch_rand_float(-0.5, 0.5, (n, 2), device)
    return {
        "root_states": torch.cat((position, root_states[:, 2:]), dim=1),
        "dof_pos": default_dof_pos * torch_rand_float(0.5, 1.5, (n, 12), device),
        "dof_vel": torch_rand_float(-0.1, 0.1, (n, 12), device),
    }


def compute_goal(state_dict):
    """Velocity and heading over the task's whole range; where the speed is 0.25 m/s or less, stand and face along x."""
    n, device = state_dict["commands"].shape[0], state_dict["commands"].device
    ranges = (state_dict["command_x_range"], state_dict["command_y_range"], state_dict["command_yaw_range"])
    x, y, heading = (torch_rand_float(r[0], r[1], (n, 1), device) for r in ranges)
    commands = torch.cat((x, y, torch.zeros_like(x), heading), dim=1)
    return {"commands": commands * (torch.norm(commands[:, :2], p=2, dim=1) > 0.25).unsqueeze(1)}
