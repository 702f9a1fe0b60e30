"""Actions move the joints' targets instead of setting them: a fifth of IsaacGymEnvs' useRelativeControl.

The next target begins where the last one was, so that the noise of exploration adds up to strokes instead of trembling,
and action 0 holds the grip. A fifth of dofSpeedScale is 4 rad/s.
"""
ACTION_DIM = 16


def compute_dof_target(actions, prev_targets, state_dict):
    stroke = 0.2 * state_dict["shadow_hand_dof_speed_scale"] * state_dict["dt"] * actions
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    return torch.clamp(prev_targets + stroke, lower, upper)
