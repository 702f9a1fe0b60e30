"""A reference of AnymalTurn, the highest of its bank: bank_024 of benchmarks/studies/bank.py,
record bank-10639b00."""

import torch

from envcoder_bench.torch_utils import quat_rotate_inverse, torch_rand_float


def human_reward(state_dict):
    """Track the commanded velocities with small torques; scales are per second, hence times dt."""
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    base_quat = root_states[:, 3:7]
    base_lin_vel = quat_rotate_inverse(base_quat, root_states[:, 7:10])
    base_ang_vel = quat_rotate_inverse(base_quat, root_states[:, 10:13])

    lin_vel_error = torch.sum(torch.square(commands[:, :2] - base_lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - base_ang_vel[:, 2])
    components = {
        "lin_vel_xy": 0.0 * dt * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 1.5 * dt * torch.exp(-ang_vel_error / 0.25),
        "torque": -0.0 * dt * torch.sum(torch.square(state_dict["torques"]), dim=1),
    }
    total = components["lin_vel_xy"] + components["ang_vel_z"] + components["torque"]
    return torch.clamp(total, min=0.0), components


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


UPRIGHT = 0.7  # cosine of the steepest tilt that counts, 45 degrees


def speed(root_states, gravity_vec):
    quat = root_states[:, 3:7]
    velocity = quat_rotate_inverse(quat, root_states[:, 7:10])
    gravity = quat_rotate_inverse(quat, gravity_vec)
    return torch.where(gravity[:, 2] < -UPRIGHT, velocity[:, 0], torch.zeros_like(velocity[:, 0]))


def sideways(root_states, gravity_vec):
    quat = root_states[:, 3:7]
    velocity = quat_rotate_inverse(quat, root_states[:, 7:10])
    gravity = quat_rotate_inverse(quat, gravity_vec)
    return torch.where(gravity[:, 2] < -UPRIGHT, velocity[:, 1], torch.zeros_like(velocity[:, 1]))


DRIFT = 2.0  # rad/s that 1 m/s costs


def turn(root_states, gravity_vec):
    quat = root_states[:, 3:7]
    turning = quat_rotate_inverse(quat, root_states[:, 10:13])[:, 2]
    gravity = quat_rotate_inverse(quat, gravity_vec)
    drift = torch.sqrt(torch.sum(root_states[:, 7:9] ** 2, dim=1) + 1e-12)
    return torch.where(gravity[:, 2] < -UPRIGHT, turning - DRIFT * drift, torch.zeros_like(turning))


def compute_reward(state_dict):
    """The human baseline's terms with other weights, the goals', and being alive."""
    total, terms = human_reward(state_dict)
    dt, root_states, gravity_vec = (state_dict[key] for key in ("dt", "root_states", "gravity_vec"))
    goals = {
        "speed": -1.0 * dt * speed(root_states, gravity_vec),
        "sideways": -1.0 * dt * sideways(root_states, gravity_vec),
        "turn": 3.0 * dt * turn(root_states, gravity_vec),
        "alive": 1.0 * dt * torch.ones_like(total),
    }
    return total + sum(goals.values()), {**terms, **goals}
