"""Ends early falls only after a grace period."""
import torch

GRACE_STEPS: int = 10


def compute_terminal(root_states: torch.Tensor, progress_buf: torch.Tensor, up_vec: torch.Tensor,
                     termination_height, **kwargs) -> torch.Tensor:
    fallen = root_states[:, 2] < termination_height
    upside_down = up_vec[:, 2] < 0.0
    started = progress_buf > GRACE_STEPS
    assert fallen.shape == started.shape, (fallen.shape, started.shape)
    return (fallen & started) | upside_down
