"""Five numbers instead of seven: the hand points down by itself, and the policy moves it, turns it and grips.

A cube on a table is grasped from above. Actions that tilt the hand need not be searched; what only a tilted hand can do
cannot be found. The controller is the human baseline's.
"""
import torch

from envcoder_bench.tasks.franka_cube_stack.human import arm_torque, gripper_force
from envcoder_bench.torch_utils import quat_axis

ACTION_DIM = 5


def compute_torque(action, state_dict):
    pointing = quat_axis(state_dict["eef_quat"], 2)  # along the fingers
    limit = state_dict["cmd_limit"]
    # the cross product of that and straight down is the axis to turn about, and the sine of the angle to turn by
    upright = torch.stack((-pointing[:, 1], pointing[:, 0]), dim=1)
    dpose = torch.cat((action[:, :3] * limit[:3], upright, action[:, 3:4] * limit[5:]), dim=1)
    return torch.cat((arm_torque(dpose, state_dict), gripper_force(action[:, 4:], state_dict)), dim=1)
