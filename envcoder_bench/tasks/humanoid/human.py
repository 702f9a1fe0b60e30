"""The Humanoid, the human baseline: the shaping of IsaacGymEnvs' Humanoid task, its formulas and constants.

Source: IsaacGymEnvs, tasks/humanoid.py and cfg/task/Humanoid.yaml (NVIDIA, BSD-3-Clause). One difference: reward and
observation see the state after the physics step they evaluate.
"""

import torch

from envcoder_bench.tasks.ant.human import compute_initial_state, compute_terminal, compute_torque, projections
from envcoder_bench.torch_utils import compute_rot, normalize_angle, unscale

ACTION_DIM = 21


def compute_reward(state_dict):
    """Progress to the target, alive, upright and facing it, less what it costs; deathCost for a fall."""
    _, up_proj, heading_proj = projections(state_dict)
    actions, dof_pos = state_dict["actions"], state_dict["dof_pos"]
    strength = state_dict["motor_efforts"] / state_dict["max_motor_effort"]  # strong joints cost more
    scaled_pos = torch.abs(unscale(dof_pos, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]))
    scaled_vel = state_dict["dof_vel"] * state_dict["dof_vel_scale"]
    # what the motors did, of their strength: with the torque below that is the action, as in IsaacGymEnvs
    torque = state_dict["dof_force_tensor"] / (state_dict["motor_efforts"] * state_dict["power_scale"])
    energy = torch.sum(torch.abs(torque * scaled_vel) * strength, dim=-1)
    at_limit = torch.sum(torch.clamp((scaled_pos - 0.98) / 0.02, min=0.0) * strength, dim=-1)
    components = {
        "progress": state_dict["potentials"] - state_dict["prev_potentials"],
        "alive": torch.full_like(up_proj, 2.0),
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
    """108 numbers: torso 12, joints' angles, velocities and torques 63, feet's forces 12, last action 21."""
    root_states = state_dict["root_states"]
    torso_quat, up_proj, heading_proj = projections(state_dict)
    velocity, ang_velocity, roll, _, yaw, angle_to_target = compute_rot(
        torso_quat, root_states[:, 7:10], root_states[:, 10:13], state_dict["targets"], root_states[:, 0:3]
    )
    angles = normalize_angle(torch.stack((yaw, roll, angle_to_target), dim=-1))
    return torch.cat(
        (
            root_states[:, 2:3],
            velocity,
            ang_velocity * state_dict["angular_velocity_scale"],
            angles,
            torch.stack((up_proj, heading_proj), dim=-1),
            unscale(state_dict["dof_pos"], state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]),
            state_dict["dof_vel"] * state_dict["dof_vel_scale"],
            state_dict["dof_force_tensor"] * state_dict["contact_force_scale"],
            state_dict["vec_sensor_tensor"] * state_dict["contact_force_scale"],
            state_dict["actions"],
        ),
        dim=-1,
    )
