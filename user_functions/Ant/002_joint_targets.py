"""Joint angles instead of torques: -1 to 1 spans each joint's range, and the model's position drives go there.

Torques must be timed to the step; a target holds by itself, so that even a bad policy has a posture. The price is
power: the drives push with all they have only where the error is large.
"""
from envcoder_bench.torch_utils import scale

ACTION_DIM = 8


def compute_dof_target(action, state_dict):
    return scale(action, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"])
