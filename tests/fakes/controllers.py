"""Functions for tests that need a controller which works without learning."""

# swings the pole of CartpoleSwingup up by its energy and balances it (LQR)
SWING_UP = """
ACTION_DIM = 1


def compute_torque(action, cart_pos, cart_vel, pole_angle, pole_vel):
    angle = torch.atan2(torch.sin(pole_angle), torch.cos(pole_angle))
    balance = 1.4 * cart_pos + 2.7 * cart_vel - 32.0 * angle - 8.4 * pole_vel
    energy = pole_vel**2 / 6.0 + 4.9 * (torch.cos(pole_angle) - 1.0)
    swing = -0.5 * energy * pole_vel * torch.cos(pole_angle) - 3.0 * cart_pos - 2.0 * cart_vel
    push = 1.1 * torch.where(torch.abs(angle) < 0.5, balance, swing) + 0.1 * action[:, 0]
    return torch.stack((torch.clamp(push, -10.0, 10.0), torch.zeros_like(push)), dim=-1)
"""
