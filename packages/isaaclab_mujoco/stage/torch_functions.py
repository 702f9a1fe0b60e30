"""What Isaac Lab's ants and humanoids script of ``isaacsim.core.utils.torch``; quaternions are wxyz."""

import torch
from torch import Tensor

from mujoco_batches import torch_utils
from mujoco_batches.torch_utils import unscale

__all__ = ["compute_heading_and_up", "compute_rot", "quat_conjugate", "unscale"]


def quat_conjugate(q: Tensor) -> Tensor:
    """Return the inverse rotations ``(..., 4)``."""
    return torch.cat((q[..., :1], -q[..., 1:]), dim=-1)


def compute_heading_and_up(
    torso_rotation: Tensor, inv_start_rot: Tensor, to_target: Tensor, vec0: Tensor, vec1: Tensor, up_idx: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what ``torch_utils.compute_heading_and_up`` does."""
    torso, inverse = torso_rotation.roll(-1, -1), inv_start_rot.roll(-1, -1)
    q, up, heading, up_vec, heading_vec = torch_utils.compute_heading_and_up(
        torso, inverse, to_target, vec0, vec1, up_idx
    )
    return q.roll(1, -1), up, heading, up_vec, heading_vec


def compute_rot(
    torso_quat: Tensor, velocity: Tensor, ang_velocity: Tensor, targets: Tensor, torso_positions: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what ``torch_utils.compute_rot`` does."""
    return torch_utils.compute_rot(torso_quat.roll(-1, -1), velocity, ang_velocity, targets, torso_positions)
