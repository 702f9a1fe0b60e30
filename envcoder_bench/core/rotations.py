"""Rotations whose rows do not depend on the number of rows."""

import torch
from torch import Tensor


def turned(quat: Tensor, angles: Tensor) -> Tensor:
    """Turn quaternions xyzw by small angles about the body's axes, by elementwise operations alone."""
    x, y, z, w = quat.unbind(1)
    a, b, c = (0.5 * angles).unbind(1)
    product = torch.stack(
        [x + w * a + y * c - z * b, y + w * b + z * a - x * c, z + w * c + x * b - y * a, w - x * a - y * b - z * c],
        dim=1,
    )
    p, q, r, s = product.unbind(1)
    return product / torch.sqrt(p * p + q * q + r * r + s * s).unsqueeze(1)
