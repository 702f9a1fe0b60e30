"""Joint torques instead of position targets: an own PD law on top of the torques that carry the robot.

A torque is held for the whole control step of 20 ms, while the task's drives (85 N m/rad, 2 N m s/rad) follow at every
physics step. So the light shanks need less damping here, or they shake; and the load, which the drives only carry once
the knees have sagged by 15 degrees, is fed forward and keeps the robot at its full height.
"""
ACTION_DIM = 12

ACTION_SCALE = 0.5  # rad
MAX_TORQUE = 80.0  # N m, what the drives can do


def drive(joint, action, state_dict, stiffness, damping, load):
    """Torque ``(n, 4)`` of one joint of all legs: N m/rad, N m s/rad, and N m read off the standing robot."""
    default_dof_pos = state_dict["default_dof_pos"][:, joint::3]
    error = default_dof_pos + ACTION_SCALE * action[:, joint::3] - state_dict["dof_pos"][:, joint::3]
    # gravity bends every joint further in the direction of its default angle
    return stiffness * error - damping * state_dict["dof_vel"][:, joint::3] - load * torch.sign(default_dof_pos)


def compute_torque(action, state_dict):
    haa = drive(0, action, state_dict, 85.0, 3.0, 8.5)
    hfe = drive(1, action, state_dict, 85.0, 3.0, 3.0)
    kfe = drive(2, action, state_dict, 80.0, 1.0, 21.0)
    torque = torch.stack((haa, hfe, kfe), dim=2).flatten(1)  # leg by leg
    return torch.clamp(torque, -MAX_TORQUE, MAX_TORQUE)
