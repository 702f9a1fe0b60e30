"""Rotations of vectors by quaternions wxyz in NumPy, one operation at a time, so that all batch sizes round equally."""

import numpy as np


def rotate(quat: np.ndarray, vec: np.ndarray, inverse: bool = False) -> np.ndarray:
    """Rotate ``(n, 3)`` vectors from the body to the world frame, or back, by ``(n, 4)`` quaternions wxyz.

    v + 2 w (u x v) + 2 u x (u x v), divided by the squared norm, so that quaternions need not be normalized (zero does
    not rotate, as in MuJoCo).
    """
    w, x, y, z = quat.T
    a, b, c = vec.T
    scale = 2.0 / np.maximum(w * w + x * x + y * y + z * z, 1e-30)
    s = -w if inverse else w
    ta, tb, tc = y * c - z * b, z * a - x * c, x * b - y * a  # u x v
    out = np.empty_like(vec)
    out[:, 0] = a + scale * (s * ta + (y * tc - z * tb))
    out[:, 1] = b + scale * (s * tb + (z * ta - x * tc))
    out[:, 2] = c + scale * (s * tc + (x * tb - y * ta))
    return out


def rotation_matrices(quat: np.ndarray) -> np.ndarray:
    """Return rotation matrices ``(n, 3, 3)`` of quaternions wxyz ``(n, 4)``; the zero quaternion does not rotate."""
    return np.array(rotation_rows(quat)).transpose(2, 0, 1)


def rotation_rows(quat: np.ndarray) -> list[list[np.ndarray]]:
    """Return the three rows of three elements of ``rotation_matrices``, each of the shape of ``quat[..., 0]``."""
    w, x, y, z = np.ascontiguousarray(np.moveaxis(quat, -1, 0))
    norm = w * w + x * x + y * y + z * z
    s = 2.0 / np.maximum(norm, 1e-30) * (norm > 0)
    return [
        [1 - s * (y * y + z * z), s * (x * y - z * w), s * (x * z + y * w)],
        [s * (x * y + z * w), 1 - s * (x * x + z * z), s * (y * z - x * w)],
        [s * (x * z - y * w), s * (y * z + x * w), 1 - s * (x * x + y * y)],
    ]


def quat_multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the products of quaternions wxyz ``(n, 4)``."""
    aw, ax, ay, az = a.T
    bw, bx, by, bz = b.T
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=1,
    )


def cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cross products ``(..., 3)``; NumPy's are slow for many axes."""
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), dtype=np.result_type(a, b))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        out[..., i] = a[..., j] * b[..., k] - a[..., k] * b[..., j]
    return out
