"""Position targets from a stance that carries the robot: knees 0.25 rad straighter than the default.

The drives are soft (60 N m/rad), so with the default stance as the target the robot sinks to its knees, and a policy has to
learn the difference before it can walk. Here an action of 0 stands.
"""
ACTION_DIM = 12

LOAD = 0.25  # rad, of the knee drives' position error under the robot's weight


def compute_dof_target(action, state_dict):
    target = state_dict["default_dof_pos"] + 0.5 * action
    hx, hy, kn = target[:, 0::3], target[:, 1::3], target[:, 2::3]
    return torch.stack((hx, hy, kn + LOAD), dim=2).flatten(1)  # leg by leg
