"""ANYmal, the human baseline: the shaping of IsaacGymEnvs' Anymal task, its formulas and constants.

Source: IsaacGymEnvs, tasks/anymal.py and cfg/task/Anymal.yaml (NVIDIA, BSD-3-Clause). Two differences: reward and
observation see the state after the physics step they evaluate, and episodes last 20 s (cfg/task/Anymal.yaml). The
action is IsaacGymEnvs', which is the task's own: joint position target = default_dof_pos + actionScale * action.
"""

import torch

from envcoder_bench.torch_utils import quat_rotate, quat_rotate_inverse, torch_rand_float


def compute_reward(state_dict):
    """Track the commanded velocities with small torques; scales are per second, hence times dt."""
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    base_quat = root_states[:, 3:7]
    base_lin_vel = quat_rotate_inverse(base_quat, root_states[:, 7:10])
    base_ang_vel = quat_rotate_inverse(base_quat, root_states[:, 10:13])

    lin_vel_error = torch.sum(torch.square(commands[:, :2] - base_lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - base_ang_vel[:, 2])
    components = {
        "lin_vel_xy": 1.0 * dt * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 0.5 * dt * torch.exp(-ang_vel_error / 0.25),
        "torque": -0.000025 * dt * torch.sum(torch.square(state_dict["torques"]), dim=1),
    }
    total = components["lin_vel_xy"] + components["ang_vel_z"] + components["torque"]
    return torch.clamp(total, min=0.0), components


def compute_observation(state_dict):
    """48 numbers: base velocities 6, gravity 3, commands 3, joint angles 12 and velocities 12, last action 12."""
    root_states, commands = state_dict["root_states"], state_dict["commands"]
    lin_vel_scale, ang_vel_scale = state_dict["lin_vel_scale"], state_dict["ang_vel_scale"]
    base_quat = root_states[:, 3:7]
    return torch.cat(
        (
            quat_rotate_inverse(base_quat, root_states[:, 7:10]) * lin_vel_scale,
            quat_rotate_inverse(base_quat, root_states[:, 10:13]) * ang_vel_scale,
            # gravity in the base's frame would be quat_rotate_inverse; IsaacGymEnvs' Anymal rotates the other way
            quat_rotate(base_quat, state_dict["gravity_vec"]),
            commands[:, :2] * lin_vel_scale,
            commands[:, 2:] * ang_vel_scale,
            (state_dict["dof_pos"] - state_dict["default_dof_pos"]) * state_dict["dof_pos_scale"],
            state_dict["dof_vel"] * state_dict["dof_vel_scale"],
            state_dict["actions"],
        ),
        dim=-1,
    )


def compute_terminal(state_dict):
    """End where base or a knee touches with more than 1 N."""
    contact_forces = state_dict["contact_forces"]
    base = torch.norm(contact_forces[:, state_dict["base_index"], :], p=2, dim=1) > 1.0
    knees = torch.norm(contact_forces[:, state_dict["knee_indices"], :], p=2, dim=2) > 1.0
    return base | torch.any(knees, dim=1)


def compute_initial_state(state_dict):
    """Base at rest at 0.62 m; joint angles 0.5 to 1.5 times the default stance; small joint velocities."""
    default_dof_pos = state_dict["default_dof_pos"]
    n, device = default_dof_pos.shape[0], default_dof_pos.device
    return {
        "root_states": state_dict["initial_root_states"],
        "dof_pos": default_dof_pos * torch_rand_float(0.5, 1.5, (n, 12), device),
        "dof_vel": torch_rand_float(-0.1, 0.1, (n, 12), device),
    }


def compute_goal(state_dict):
    """Commands over the task's whole range: +-2 m/s forward, +-1 m/s sideways, +-1 rad/s."""
    n, device = state_dict["commands"].shape[0], state_dict["commands"].device
    ranges = (state_dict["command_x_range"], state_dict["command_y_range"], state_dict["command_yaw_range"])
    return {"commands": torch.cat([torch_rand_float(r[0], r[1], (n, 1), device) for r in ranges], dim=1)}
