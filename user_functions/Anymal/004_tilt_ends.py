"""Episodes end by posture, not by contact: where the base tilts by more than 60 degrees or sinks below 0.3 m.

The human baseline ends an episode at the first touch of a knee, which is safe but stops many early tries. Here the robot
may stumble and catch itself; the reward then has to say that standing upright is better.
"""
from envcoder_bench.torch_utils import quat_axis, quat_rotate_inverse


def compute_terminal(state_dict):
    root_states = state_dict["root_states"]
    uprightness = quat_axis(root_states[:, 3:7], 2)[:, 2]  # cosine of the tilt
    return (uprightness < 0.5) | (root_states[:, 2] < 0.3)


def compute_reward(state_dict):
    root_states, commands, dt = state_dict["root_states"], state_dict["commands"], state_dict["dt"]
    base_quat = root_states[:, 3:7]
    lin_vel = quat_rotate_inverse(base_quat, root_states[:, 7:10])
    ang_vel = quat_rotate_inverse(base_quat, root_states[:, 10:13])
    lin_vel_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    ang_vel_error = torch.square(commands[:, 2] - ang_vel[:, 2])
    tracking = torch.exp(-lin_vel_error / 0.25) + 0.5 * torch.exp(-ang_vel_error / 0.25)

    uprightness = torch.clamp(quat_axis(base_quat, 2)[:, 2], min=0.0)
    height = torch.exp(-torch.square((root_states[:, 2] - 0.5) / 0.1))
    knees = torch.norm(state_dict["contact_forces"][:, state_dict["knee_indices"], :], p=2, dim=2) > 1.0
    components = {
        "tracking": dt * tracking * torch.square(uprightness),
        "height": 0.2 * dt * height,
        "knees": -0.2 * dt * knees.float().sum(dim=1),
    }
    return torch.clamp(sum(components.values()), min=0.0), components
