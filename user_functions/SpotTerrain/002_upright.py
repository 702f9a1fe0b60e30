"""A reward that keeps the body level and high above the ground under it, which the height scan measures.

The human baseline says nothing of posture, so policies crouch. The body's height is counted from the mean of the scan.
"""
from envcoder_bench.torch_utils import quat_rotate_inverse

HEIGHT = 0.48  # m


def compute_reward(state_dict):
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    base_quat = root_states[:, 3:7]
    lin_vel = quat_rotate_inverse(base_quat, root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(base_quat, root_states[:, 10:13])
    gravity = quat_rotate_inverse(base_quat, state_dict["gravity_vec"])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - ang_vel[:, 2])
    above = root_states[:, 2] - torch.mean(state_dict["measured_heights"], dim=1)
    rate = state_dict["last_actions"] - state_dict["actions"]

    components = {
        "lin_vel_xy": 1.0 * torch.exp(-lin_vel_error / 0.25),
        "ang_vel_z": 0.5 * torch.exp(-ang_vel_error / 0.25),
        "height": 0.3 * torch.exp(-torch.square(above - HEIGHT) / 0.01),
        "tilt": -0.1 * torch.sum(torch.square(gravity[:, :2]), dim=1),
        "wobble": -0.005 * torch.sum(torch.square(ang_vel[:, :2]), dim=1),
        "torque": -0.000002 * torch.sum(torch.square(state_dict["torques"]), dim=1),
        "action_rate": -0.001 * torch.sum(torch.square(rate), dim=1),
    }
    components = {name: dt * value for name, value in components.items()}
    return torch.clamp(sum(components.values()), min=0.0), components
