"""A reward that grows with the difficulty of the terrain: tracking counts half as much again on the hardest level.

Without it, a policy earns least where it learns most.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse


def compute_reward(state_dict):
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    lin_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(root_states[:, 3:7], root_states[:, 10:13])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - ang_vel[:, 2])
    worth = 1.0 + 0.05 * state_dict["terrain_levels"]  # levels 0 to 9
    rate = state_dict["last_actions"] - state_dict["actions"]

    components = {
        "lin_vel_xy": worth * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 0.5 * worth * torch.exp(-ang_vel_error / 0.25),
        "bounce": -0.4 * torch.square(lin_vel[:, 2]),
        "wobble": -0.005 * torch.sum(torch.square(ang_vel[:, :2]), dim=1),
        "torque": -0.000002 * torch.sum(torch.square(state_dict["torques"]), dim=1),
        "action_rate": -0.001 * torch.sum(torch.square(rate), dim=1),
    }
    components = {name: dt * value for name, value in components.items()}
    return torch.clamp(sum(components.values()), min=0.0), components
