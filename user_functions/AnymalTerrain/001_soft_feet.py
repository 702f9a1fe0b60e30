"""A reward with a price on feet that stumble or slam, instead of one on the joints' accelerations.

A foot stumbles where the ground pushes it sideways more than up, as the riser of a step does. Velocity tracking is that
of the human baseline.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse


def compute_reward(state_dict):
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - ang_vel[:, 2])
    feet = state_dict["contact_forces"][:, state_dict["feet_indices"], :]
    sideways, up = torch.norm(feet[:, :, :2], p=2, dim=2), feet[:, :, 2]
    power = torch.sum(torch.abs(state_dict["torques"] * state_dict["dof_vel"]), dim=1)  # W

    components = {
        "lin_vel_xy": 1.0 * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 0.5 * torch.exp(-ang_vel_error / 0.25),
        "stumble": -0.1 * torch.sum((sideways > torch.abs(up)) & (sideways > 5.0), dim=1),
        "slam": -0.001 * torch.sum(torch.clamp(up - 400.0, min=0.0), dim=1),  # N over three quarters of the weight
        "wobble": -0.005 * torch.sum(torch.square(ang_vel[:, :2]), dim=1),
        "power": -0.0002 * power,
    }
    components = {name: dt * value for name, value in components.items()}
    return torch.clamp(sum(components.values()), min=0.0), components
