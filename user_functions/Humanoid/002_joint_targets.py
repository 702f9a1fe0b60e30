"""Joint angles instead of torques: offsets from the standing posture, which the model's position drives hold.

With torques, a policy that does nothing folds up; here it stands. Each joint moves by up to half its range to either
side of straight, within what the joint allows.
"""
ACTION_DIM = 21


def compute_dof_target(action, state_dict):
    lower, upper = state_dict["dof_limits_lower"], state_dict["dof_limits_upper"]
    return torch.clamp(0.5 * action * (upper - lower), lower, upper)
