"""Torque with saturation and a first-order smoothing against the last action."""
import torch

ACTION_DIM = 21


class Smoother:
    """Blends the new action with the previous one."""

    def __init__(self, alpha: float):
        assert 0.0 < alpha <= 1.0, "alpha must be in (0, 1]"
        self.alpha = alpha

    def blend(self, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        return self.alpha * new + (1.0 - self.alpha) * old


_smoother = Smoother(alpha=0.8)


def compute_torque(action, state_dict):
    efforts = state_dict["motor_efforts"]
    torque = _smoother.blend(action, torch.tanh(action)) * efforts * state_dict["power_scale"]
    low, high = -efforts, efforts
    return torch.maximum(torch.minimum(torque, high), low)
