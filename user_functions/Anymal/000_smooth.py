"""A reward with a price on everything that shakes the robot.

Velocity tracking as in the human baseline decides where to go; penalties that are small beside it shape how. Each part
is returned as a component, so that the curves show which of them the policy pays.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse


def compute_reward(state_dict):
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    base_quat = root_states[:, 3:7]
    lin_vel = quat_rotate_inverse(base_quat, root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(base_quat, root_states[:, 10:13])
    gravity = quat_rotate_inverse(base_quat, state_dict["gravity_vec"])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - ang_vel[:, 2])
    power = torch.sum(torch.abs(state_dict["torques"] * state_dict["dof_vel"]), dim=1)  # W

    components = {
        "lin_vel_xy": 1.0 * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 0.5 * torch.exp(-ang_vel_error / 0.25),
        "bounce": -1.0 * torch.square(lin_vel[:, 2]),
        "wobble": -0.05 * torch.sum(torch.square(ang_vel[:, :2]), dim=1),
        "tilt": -1.0 * torch.sum(torch.square(gravity[:, :2]), dim=1),
        "power": -0.0002 * power,
    }
    components = {name: dt * value for name, value in components.items()}
    # never below zero: where each step costs something, the cheapest policy falls at once
    return torch.clamp(sum(components.values()), min=0.0), components
