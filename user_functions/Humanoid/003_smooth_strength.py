"""Torques with muscle tone: damped joints, and a gentle pull towards standing under whatever the policy asks for.

The policy still commands torque, with 80 % of each motor's strength; the rest of it damps and straightens. It explores
around a posture instead of around falling down.
"""
ACTION_DIM = 21


def compute_torque(action, state_dict):
    strength = state_dict["motor_efforts"]
    tone = -0.4 * state_dict["dof_pos"] - 0.02 * state_dict["dof_vel"]  # of the strength, per rad and per rad/s
    return strength * (0.8 * action + torch.clamp(tone, -0.2, 0.2))
