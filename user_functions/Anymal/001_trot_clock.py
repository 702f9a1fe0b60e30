"""A trot by the clock: reward and observation share a phase.

Functions keep no memory from step to step, but progress_buf counts the steps of the episode, and that is a clock. Twice
a second the diagonal pairs of feet change over: one pair is to stand while the other swings. The policy can only follow
a clock that it sees, so the observation has the phase too.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse

FREQUENCY = 2.0  # Hz


def phase(state_dict):
    return 2.0 * math.pi * FREQUENCY * state_dict["progress_buf"] * state_dict["dt"]


def compute_reward(state_dict):
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - ang_vel[:, 2])

    on_ground = state_dict["contact_forces"][:, state_dict["feet_indices"], 2] > 1.0  # LF, LH, RF, RH
    first_pair = torch.sin(phase(state_dict)) > 0.0  # LF and RH are to stand now, else LH and RF
    wanted = torch.stack((first_pair, ~first_pair, ~first_pair, first_pair), dim=1)

    components = {
        "lin_vel_xy": dt * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 0.5 * dt * torch.exp(-ang_vel_error / 0.25),
        "gait": 0.3 * dt * (on_ground == wanted).float().mean(dim=1),
        "torque": -0.000025 * dt * torch.sum(torch.square(state_dict["torques"]), dim=1),
    }
    return torch.clamp(sum(components.values()), min=0.0), components


def compute_observation(state_dict):
    base_quat = state_dict["root_states"][:, 3:7]
    angle = phase(state_dict)
    return torch.cat(
        (
            2.0 * quat_rotate_inverse(base_quat, state_dict["root_states"][:, 7:10]),
            0.25 * quat_rotate_inverse(base_quat, state_dict["root_states"][:, 10:13]),
            quat_rotate_inverse(base_quat, state_dict["gravity_vec"]),
            state_dict["commands"],
            state_dict["dof_pos"] - state_dict["default_dof_pos"],
            0.05 * state_dict["dof_vel"],
            state_dict["actions"],
            torch.stack((torch.sin(angle), torch.cos(angle)), dim=1),
        ),
        dim=-1,
    )
