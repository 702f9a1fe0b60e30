"""Joint torques instead of position targets: an own PD law on top of the torques that carry the robot.

A torque is held for the whole control step of 20 ms, while the task's drives (85 N m/rad, 2 N m s/rad) follow at every
physics step. So the light shanks need less damping here, or they shake; and the stance torques, which the drives only
give once the legs have sagged by 15 degrees, keep the robot at its full height.
"""
ACTION_DIM = 12

ACTION_SCALE = 0.5  # rad
MAX_TORQUE = 80.0  # N m, what the drives can do
# HAA, HFE, KFE of LF, LH, RF, RH
STIFFNESS = 4 * (85.0, 85.0, 80.0)  # N m/rad
DAMPING = 4 * (3.0, 3.0, 1.0)  # N m s/rad
STANCE = (-8.5, -3.0, 21.0, -8.5, 3.0, -21.0, 8.5, -3.0, 21.0, 8.5, 3.0, -21.0)  # N m, read off the standing robot


def compute_torque(action, state_dict):
    stiffness, damping, stance = (torch.tensor(x, device=action.device) for x in (STIFFNESS, DAMPING, STANCE))
    target = state_dict["default_dof_pos"] + ACTION_SCALE * action
    torque = stance + stiffness * (target - state_dict["dof_pos"]) - damping * state_dict["dof_vel"]
    return torch.clamp(torque, -MAX_TORQUE, MAX_TORQUE)
