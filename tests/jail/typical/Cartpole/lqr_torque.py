"""A residual policy on top of an LQR controller."""
import numpy as np
import torch

ACTION_DIM = 1
K = np.array([[-1.0, -1.8, 32.0, 6.5]])  # gains for [x, x_dot, theta, theta_dot]


def compute_torque(action, state_dict):
    x = torch.stack(
        [state_dict["cart_pos"], state_dict["cart_vel"], state_dict["pole_angle"], state_dict["pole_vel"]], dim=-1
    )
    gains = torch.as_tensor(K, dtype=x.dtype, device=x.device)
    u = torch.matmul(x, gains.t())
    force = torch.clamp(u + 50.0 * action, -float(state_dict["max_push_effort"]), float(state_dict["max_push_effort"]))
    torque = torch.zeros(x.shape[0], 2, dtype=x.dtype, device=x.device)
    torque[:, 0:1] = force
    return torque
