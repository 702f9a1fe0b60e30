"""Arithmetic in which a row's bits depend on that row alone, on the CPU."""

from collections.abc import Callable

import torch
from torch import Tensor

_VECTOR = 64  # a multiple of the rows in a vector register


def by_rows(function: Callable[..., Tensor], *columns: Tensor) -> Tensor:
    """Apply an elementwise function to ``(n,)`` columns.

    On a CPU torch computes the last rows, which do not fill a vector register, with another implementation of
    transcendental functions. Filling it up gives all rows the same one.
    """
    rest = -columns[0].shape[0] % _VECTOR
    if columns[0].device.type != "cpu" or rest == 0:
        return function(*(column.contiguous() for column in columns))
    padded = [torch.nn.functional.pad(column, (0, rest)) for column in columns]
    return function(*padded)[: columns[0].shape[0]].clone()


def rotate_inverse(quat: Tensor, vec: Tensor) -> Tensor:
    """Rotate world-frame vectors ``(n, 3)`` to the frame of quaternions ``(n, 4)`` xyzw."""
    x, y, z, w = quat.unbind(1)
    a, b, c = vec.unbind(1)
    # t = 2 v x q, then v + w t + t x q
    ta, tb, tc = 2.0 * (b * z - c * y), 2.0 * (c * x - a * z), 2.0 * (a * y - b * x)
    return torch.stack(
        [a + w * ta + (tb * z - tc * y), b + w * tb + (tc * x - ta * z), c + w * tc + (ta * y - tb * x)], dim=1
    )


def roll_pitch_yaw(quat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the angles ``(n,)``, rad, of quaternions ``(n, 4)`` xyzw."""
    x, y, z, w = quat.unbind(1)
    roll = by_rows(torch.atan2, 2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    pitch = by_rows(torch.asin, (2.0 * (w * y - z * x)).clamp(-1.0, 1.0))
    yaw = by_rows(torch.atan2, 2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return roll, pitch, yaw


def wrapped(angle: Tensor) -> Tensor:
    """Return angles, rad, in [-pi, pi)."""
    return torch.remainder(angle + torch.pi, 2.0 * torch.pi) - torch.pi
