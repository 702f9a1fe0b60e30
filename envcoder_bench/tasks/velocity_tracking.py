"""The fitness of tasks that track velocity commands."""

import torch
from torch import Tensor

from envcoder_bench.torch_utils import quat_rotate_inverse


def velocity_tracking(state: dict[str, Tensor]) -> Tensor:
    """Return ``(n,)`` scores, 0 to 1, of the base's velocity along x and y and its yaw rate against the commands."""
    root, commands = state["root_states"], state["commands"]
    lin_vel = quat_rotate_inverse(root[:, 3:7], root[:, 7:10])
    ang_vel = quat_rotate_inverse(root[:, 3:7], root[:, 10:13])
    lin_error = torch.sum(torch.square(commands[:, :2] - lin_vel[:, :2]), dim=1)
    yaw_error = torch.square(commands[:, 2] - ang_vel[:, 2])
    return (torch.exp(-lin_error / 0.25) + 0.5 * torch.exp(-yaw_error / 0.25)) / 1.5
