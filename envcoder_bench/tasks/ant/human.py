"""The Ant, the human baseline: the shaping of IsaacGymEnvs' Ant task, its formulas and constants.

Source: IsaacGymEnvs, tasks/ant.py and cfg/task/Ant.yaml (NVIDIA, BSD-3-Clause). One difference: reward and observation
see the state after the physics step they evaluate.
"""

import torch

from envcoder_bench.torch_utils import compute_heading_and_up, compute_rot, tensor_clamp, torch_rand_float, unscale

ACTION_DIM = 8


def projections(state_dict):
    """Torso quaternion, and how far its up axis points up and its forward axis to the target, ``(n,)`` each."""
    root_states, forward, up = state_dict["root_states"], state_dict["basis_vec0"], state_dict["basis_vec1"]
    to_target = (state_dict["targets"] - root_states[:, 0:3]) * (1.0 - up)  # horizontal
    torso_quat, up_proj, heading_proj, _, _ = compute_heading_and_up(
        root_states[:, 3:7], state_dict["inv_start_rot"], to_target, forward, up, 2
    )
    return torso_quat, up_proj, heading_proj


def compute_reward(state_dict):
    """Progress to the target, alive, upright and facing it, less what it costs; deathCost for a fall."""
    _, up_proj, heading_proj = projections(state_dict)
    actions, dof_pos = state_dict["actions"], state_dict["dof_pos"]
    scaled_pos = unscale(dof_pos, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"])
    scaled_vel = state_dict["dof_vel"] * state_dict["dof_vel_scale"]
    # what the motors did, of their strength: with the torque below that is the action, as in IsaacGymEnvs
    torque = state_dict["dof_force_tensor"] / (state_dict["motor_efforts"] * state_dict["power_scale"])
    energy = torch.sum(torch.abs(torque * scaled_vel), dim=-1)
    at_limit = torch.sum((scaled_pos > 0.99).float(), dim=-1)
    components = {
        "progress": state_dict["potentials"] - state_dict["prev_potentials"],
        "alive": torch.full_like(up_proj, 0.5),
        "up": torch.where(up_proj > 0.93, 1.0, 0.0) * state_dict["up_weight"],
        "heading": torch.clamp(heading_proj / 0.8, max=1.0) * state_dict["heading_weight"],
        "actions_cost": -state_dict["actions_cost_scale"] * torch.sum(actions**2, dim=-1),
        "energy_cost": -state_dict["energy_cost_scale"] * energy,
        "joints_at_limit_cost": -state_dict["joints_at_limit_cost_scale"] * at_limit,
    }
    total = sum(components.values())
    fallen = state_dict["root_states"][:, 2] < state_dict["termination_height"]
    return torch.where(fallen, torch.full_like(up_proj, state_dict["death_cost"].item()), total), components


def compute_observation(state_dict):
    """60 numbers: torso 12, joint angles 8 and velocities 8, feet's forces 24, last action 8."""
    root_states = state_dict["root_states"]
    torso_quat, up_proj, heading_proj = projections(state_dict)
    velocity, ang_velocity, roll, _, yaw, angle_to_target = compute_rot(
        torso_quat, root_states[:, 7:10], root_states[:, 10:13], state_dict["targets"], root_states[:, 0:3]
    )
    angles = torch.stack((yaw, roll, angle_to_target, up_proj, heading_proj), dim=-1)
    return torch.cat(
        (
            root_states[:, 2:3],
            velocity,
            ang_velocity,
            angles,
            unscale(state_dict["dof_pos"], state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
            state_dict["dof_vel"] * state_dict["dof_vel_scale"],
            state_dict["vec_sensor_tensor"] * state_dict["contact_force_scale"],
            state_dict["actions"],
        ),
        dim=-1,
    )


def compute_torque(actions, motor_efforts, power_scale):
    """Torques up to the motors' greatest, times powerScale."""
    return actions * motor_efforts * power_scale


def compute_terminal(root_states, termination_height):
    """End with a fall."""
    return root_states[:, 2] < termination_height


def compute_initial_state(state_dict):
    """At rest facing the target; joint angles within 0.2 rad of the initial ones, velocities within 0.1 rad/s."""
    shape, device = state_dict["dof_pos"].shape, state_dict["dof_pos"].device
    dof_pos = state_dict["initial_dof_pos"] + torch_rand_float(-0.2, 0.2, shape, device)
    return {
        "root_states": state_dict["initial_root_states"],
        "dof_pos": tensor_clamp(dof_pos, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
        "dof_vel": torch_rand_float(-0.1, 0.1, shape, device),
    }
