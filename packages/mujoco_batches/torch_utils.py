"""Quaternion, scaling and random helpers with IsaacGymEnvs' names and conventions.

This is an independent implementation of the interface of ``isaacgymenvs.utils.torch_jit_utils`` and
``isaacgym.torch_utils``. Quaternions are xyzw, angles rad, leading axes are batches. The functions have no control flow
on data, so that they can be traced, scripted and captured, and no matrix products, so that each row's result depends
bitwise on that row only. Random helpers draw from the source in ``draws``.
"""
# No `from __future__ import annotations` here: torch.jit.script needs real annotations on `_uniform`.

import math

import numpy as np
import torch
from torch import Tensor

from mujoco_batches import draws


def to_torch(x, dtype=torch.float, device=None, requires_grad: bool = False) -> Tensor:
    """Copy data to a new tensor; ``device`` None is torch's default device (the original's is cuda:0)."""
    if isinstance(x, Tensor):
        return x.detach().clone().to(dtype=dtype, device=device).requires_grad_(requires_grad)
    return torch.tensor(x, dtype=dtype, device=device, requires_grad=requires_grad)


def get_axis_params(value: float, axis_idx: int, x_value: float = 0.0, dtype=float, n_dims: int = 3) -> list:
    """List of ``n_dims`` zeros with ``value`` at ``axis_idx`` and ``x_value`` at 0 (which wins at axis 0)."""
    if not 0 <= axis_idx < n_dims:
        raise ValueError(f"axis_idx {axis_idx} is not one of the {n_dims} axes")
    params = [0.0] * n_dims
    params[axis_idx] = value
    params[0] = x_value
    return list(np.asarray(params).astype(dtype))


# random numbers


@torch.jit.ignore  # type: ignore[arg-type]
def _uniform(rows: int, columns: int, device: str) -> Tensor:
    if isinstance(rows, Tensor):  # some tasks give the sum of a mask
        rows = int(rows)
    return draws.uniform((rows, columns), device=device)


def torch_rand_float(lower: float, upper: float, shape: tuple[int, int], device: str) -> Tensor:
    """Draw uniform numbers in [lower, upper): ``(rows, columns)``."""
    return (upper - lower) * _uniform(shape[0], shape[1], device) + lower


def torch_rand_sign(shape: tuple[int, int], device: str) -> Tensor:
    """Draw -1 and 1 with equal probability: ``(rows, columns)``."""
    drawn = torch_rand_float(-1.0, 1.0, shape, device)
    return torch.where(drawn < 0.0, -torch.ones_like(drawn), torch.ones_like(drawn))


def torch_random_dir_2(shape: tuple[int, int], device: str) -> Tensor:
    """Draw unit vectors in the plane, ``(rows, 2)``, for a ``shape`` of (rows, 1)."""
    angle = torch_rand_float(-math.pi, math.pi, shape, device).squeeze(-1)
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)


# ranges


def tensor_clamp(t: Tensor, min_t: Tensor, max_t: Tensor) -> Tensor:
    """Clamp to tensor bounds."""
    return torch.max(torch.min(t, max_t), min_t)


def saturate(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Clamp to tensor bounds, arguments as in scale_transform."""
    return torch.max(torch.min(x, upper), lower)


def scale(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Map [-1, 1] to [lower, upper]."""
    return lower + 0.5 * (x + 1.0) * (upper - lower)


def unscale(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Map [lower, upper] to [-1, 1]."""
    return (2.0 * x - upper - lower) / (upper - lower)


def unscale_np(x, lower, upper):
    """Map [lower, upper] to [-1, 1] in numpy."""
    return (2.0 * x - upper - lower) / (upper - lower)


def scale_transform(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Map [lower, upper] to [-1, 1]: the opposite direction of ``scale``, as in the original."""
    return (2.0 * x - upper - lower) / (upper - lower)


def unscale_transform(x: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Map [-1, 1] to [lower, upper]."""
    return 0.5 * (x * (upper - lower) + lower + upper)


# angles and vectors


def normalize(x: Tensor, eps: float = 1e-9) -> Tensor:
    """Scale ``(..., k)`` vectors to unit length; those shorter than ``eps`` are divided by ``eps``."""
    return x / torch.norm(x, p=2, dim=-1, keepdim=True).clamp(min=eps)


def normalize_angle(x: Tensor) -> Tensor:
    """Wrap angles to [-pi, pi]."""
    return torch.atan2(torch.sin(x), torch.cos(x))


def copysign(a: float, b: Tensor) -> Tensor:
    """Magnitude of the number ``a`` with the signs of ``b``; zero where ``b`` is zero."""
    return abs(a) * torch.sign(b)


# quaternions


def quat_mul(a: Tensor, b: Tensor) -> Tensor:
    """Hamilton product: the rotation ``b`` followed by ``a``."""
    ax, ay, az, aw = torch.unbind(a, dim=-1)
    bx, by, bz, bw = torch.unbind(b, dim=-1)
    return torch.stack(
        [
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
            aw * bw - ax * bx - ay * by - az * bz,
        ],
        dim=-1,
    )


def quat_conjugate(a: Tensor) -> Tensor:
    """Inverse of a unit quaternion."""
    return torch.cat([-a[..., :3], a[..., 3:]], dim=-1)


def quat_unit(a: Tensor) -> Tensor:
    """Scale quaternions to unit length."""
    return normalize(a)


def quat_apply(a: Tensor, b: Tensor) -> Tensor:
    """Rotate vectors ``(..., 3)`` by unit quaternions ``(..., 4)``: v + w t + u x t with t = 2 u x v.

    Quaternions of another number of dimensions, such as ``(n * points, 4)`` for vectors ``(n, points, 3)``, are taken
    in the vectors' order.
    """
    shape = b.shape
    if a.dim() != b.dim():
        a, b = a.reshape(-1, 4), b.reshape(-1, 3)
    u = a[..., :3]
    t = 2.0 * torch.cross(u, b, dim=-1)
    turned = b + a[..., 3:] * t + torch.cross(u, t, dim=-1)
    return turned.view(shape) if b.dim() != len(shape) else turned


def quat_rotate(q: Tensor, v: Tensor) -> Tensor:
    """Rotate body-frame vectors ``(n, 3)`` to the frame that ``q`` ``(n, 4)`` is given in."""
    return quat_apply(q, v)


def my_quat_rotate(q: Tensor, v: Tensor) -> Tensor:
    """The same as quat_rotate (the name in the motion-imitation tasks)."""
    return quat_apply(q, v)


def quat_rotate_inverse(q: Tensor, v: Tensor) -> Tensor:
    """Express vectors ``(n, 3)`` in the body frame of ``q`` ``(n, 4)``."""
    return quat_apply(quat_conjugate(q), v)


def quat_axis(q: Tensor, axis: int = 0) -> Tensor:
    """Direction of a body axis (0 x, 1 y, 2 z): ``(..., 3)``."""
    return quat_apply(q, _unit_vector(q[..., :3], axis))


def get_basis_vector(q: Tensor, v: Tensor) -> Tensor:
    """The same as quat_rotate."""
    return quat_apply(q, v)


def quat_diff_rad(a: Tensor, b: Tensor) -> Tensor:
    """Angle between two orientations, 0 to pi: ``(...)``."""
    difference = quat_mul(a, quat_conjugate(b))
    return 2.0 * torch.asin(torch.norm(difference[..., :3], p=2, dim=-1).clamp(max=1.0))


def slerp(q0: Tensor, q1: Tensor, t: Tensor) -> Tensor:
    """Interpolate orientations along the shorter arc; ``t`` ``(..., 1)`` from 0 (q0) to 1 (q1)."""
    cosine = torch.sum(q0 * q1, dim=-1, keepdim=True)
    q1 = torch.where(cosine < 0.0, -q1, q1)
    half = torch.acos(cosine.abs().clamp(max=1.0))
    sine = torch.sin(half)
    near = sine < 1e-3  # the sphere is flat there: linear, and no division by zero
    safe = torch.where(near, torch.ones_like(sine), sine)
    w0 = torch.where(near, 1.0 - t, torch.sin((1.0 - t) * half) / safe)
    w1 = torch.where(near, t, torch.sin(t * half) / safe)
    return w0 * q0 + w1 * q1


def _unit_vector(like: Tensor, axis: int) -> Tensor:
    """Unit vectors of the shape of ``like`` ``(..., 3)``, built without an indexed write."""
    index = torch.arange(3, device=like.device)
    return torch.zeros_like(like) + (index == axis).to(like.dtype)


# conversions


def quat_from_angle_axis(angle: Tensor, axis: Tensor) -> Tensor:
    """Quaternion of a rotation by ``angle`` ``(...)`` about ``axis`` ``(..., 3)`` of any length."""
    half = 0.5 * angle.unsqueeze(-1)
    return quat_unit(torch.cat([normalize(axis) * torch.sin(half), torch.cos(half)], dim=-1))


def quat_to_angle_axis(q: Tensor) -> tuple[Tensor, Tensor]:
    """Angle ``(...)`` in [-pi, pi] and axis ``(..., 3)`` of unit quaternions; no rotation has angle 0 and axis z."""
    sine = torch.norm(q[..., :3], p=2, dim=-1)
    turned = sine > 1e-5
    angle = normalize_angle(2.0 * torch.atan2(sine, q[..., 3]))
    axis = q[..., :3] / torch.where(turned, sine, torch.ones_like(sine)).unsqueeze(-1)
    angle = torch.where(turned, angle, torch.zeros_like(angle))
    return angle, torch.where(turned.unsqueeze(-1), axis, _unit_vector(axis, 2))


def angle_axis_to_exp_map(angle: Tensor, axis: Tensor) -> Tensor:
    """Rotation vector of angle ``(...)`` and unit axis ``(..., 3)``."""
    return angle.unsqueeze(-1) * axis


def exp_map_to_angle_axis(exp_map: Tensor) -> tuple[Tensor, Tensor]:
    """Angle in [-pi, pi] and axis of rotation vectors; a zero vector has angle 0 and axis z."""
    length = torch.norm(exp_map, p=2, dim=-1)
    turned = length > 1e-5
    axis = exp_map / torch.where(turned, length, torch.ones_like(length)).unsqueeze(-1)
    angle = torch.where(turned, normalize_angle(length), torch.zeros_like(length))
    return angle, torch.where(turned.unsqueeze(-1), axis, _unit_vector(exp_map, 2))


def quat_to_exp_map(q: Tensor) -> Tensor:
    """Rotation vectors ``(..., 3)``, rad, of unit quaternions."""
    angle, axis = quat_to_angle_axis(q)
    return angle_axis_to_exp_map(angle, axis)


def exp_map_to_quat(exp_map: Tensor) -> Tensor:
    """Quaternions of rotation vectors ``(..., 3)``, rad."""
    angle, axis = exp_map_to_angle_axis(exp_map)
    return quat_from_angle_axis(angle, axis)


def get_euler_xyz(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Roll, pitch, yaw ``(n,)`` about the fixed axes x, y, z in that order, each in [0, 2 pi) as in the original."""
    x, y, z, w = torch.unbind(q, dim=-1)
    roll = torch.atan2(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)
    pitch = torch.asin((2.0 * (w * y - z * x)).clamp(-1.0, 1.0))
    yaw = torch.atan2(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)
    turn = 2.0 * math.pi
    return roll % turn, pitch % turn, yaw % turn


def quat_from_euler_xyz(roll: Tensor, pitch: Tensor, yaw: Tensor) -> Tensor:
    """Quaternion of a rotation about the fixed axes x, y, z in that order: ``(..., 4)``."""
    cr, sr = torch.cos(0.5 * roll), torch.sin(0.5 * roll)
    cp, sp = torch.cos(0.5 * pitch), torch.sin(0.5 * pitch)
    cy, sy = torch.cos(0.5 * yaw), torch.sin(0.5 * yaw)
    return torch.stack(
        [
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
            cr * cp * cy + sr * sp * sy,
        ],
        dim=-1,
    )


def euler_xyz_to_exp_map(roll: Tensor, pitch: Tensor, yaw: Tensor) -> Tensor:
    """Rotation vectors of roll, pitch, yaw."""
    return quat_to_exp_map(quat_from_euler_xyz(roll, pitch, yaw))


def quat_to_tan_norm(q: Tensor) -> Tensor:
    """Directions of the body's x and z axes: ``(..., 6)``, an orientation without jumps."""
    return torch.cat([quat_axis(q, 0), quat_axis(q, 2)], dim=-1)


def quaternion_to_matrix(quaternions: Tensor) -> Tensor:
    """Rotation matrices ``(..., 3, 3)`` of quaternions **wxyz** (the one convention of the original that differs)."""
    w, x, y, z = torch.unbind(quaternions, dim=-1)
    s = 2.0 / torch.sum(quaternions * quaternions, dim=-1)
    rows = [
        torch.stack([1.0 - s * (y * y + z * z), s * (x * y - z * w), s * (x * z + y * w)], dim=-1),
        torch.stack([s * (x * y + z * w), 1.0 - s * (x * x + z * z), s * (y * z - x * w)], dim=-1),
        torch.stack([s * (x * z - y * w), s * (y * z + x * w), 1.0 - s * (x * x + y * y)], dim=-1),
    ]
    return torch.stack(rows, dim=-2)


def matrix_to_quaternion(matrix: Tensor) -> Tensor:
    """Quaternions **wxyz** of rotation matrices ``(..., 3, 3)``.

    Row k of the outer product 4 q q^T is q scaled by 4 q_k: take the row of the largest component (Shepperd, 1978).
    """
    m = matrix
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    wx, wy, wz = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    xy, xz, yz = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0], m[..., 1, 2] + m[..., 2, 1]
    outer = torch.stack(
        [
            torch.stack([1.0 + xx + yy + zz, wx, wy, wz], dim=-1),
            torch.stack([wx, 1.0 + xx - yy - zz, xy, xz], dim=-1),
            torch.stack([wy, xy, 1.0 - xx + yy - zz, yz], dim=-1),
            torch.stack([wz, xz, yz, 1.0 - xx - yy + zz], dim=-1),
        ],
        dim=-2,
    )
    squares = torch.stack([outer[..., 0, 0], outer[..., 1, 1], outer[..., 2, 2], outer[..., 3, 3]], dim=-1)
    largest = torch.argmax(squares, dim=-1, keepdim=True).unsqueeze(-1)
    row = torch.gather(outer, -2, largest.expand_as(outer[..., :1, :])).squeeze(-2)
    return normalize(row)


# headings: where the body's x axis points in the horizontal plane


def calc_heading(q: Tensor) -> Tensor:
    """Yaw ``(...)`` of the body's x axis, in [-pi, pi]."""
    forward = quat_axis(q, 0)
    return torch.atan2(forward[..., 1], forward[..., 0])


def calc_heading_quat(q: Tensor) -> Tensor:
    """Rotation about z by the heading of ``q``."""
    return quat_from_angle_axis(calc_heading(q), _unit_vector(q[..., :3], 2))


def calc_heading_quat_inv(q: Tensor) -> Tensor:
    """Rotation about z by minus the heading of ``q``."""
    return quat_from_angle_axis(-calc_heading(q), _unit_vector(q[..., :3], 2))


def compute_heading_and_up(
    torso_rotation: Tensor, inv_start_rot: Tensor, to_target: Tensor, vec0: Tensor, vec1: Tensor, up_idx: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Torso quaternion, its uprightness and its heading towards a target, as in the locomotion tasks.

    Args:
        torso_rotation, inv_start_rot: ``(n, 4)``; their product is the torso quaternion.
        to_target: ``(n, 3)`` vector from torso to target.
        vec0, vec1: ``(n, 3)`` forward and up in the torso's frame.
        up_idx: world axis that is up.

    Returns:
        Torso quaternion, up projection ``(n,)``, heading projection ``(n,)``, up vector, heading vector.
    """
    torso_quat = quat_mul(torso_rotation, inv_start_rot)
    up_vec, heading_vec = quat_apply(torso_quat, vec1), quat_apply(torso_quat, vec0)
    heading_proj = torch.sum(heading_vec * normalize(to_target), dim=-1)
    return torso_quat, up_vec[..., up_idx], heading_proj, up_vec, heading_vec


def compute_rot(
    torso_quat: Tensor, velocity: Tensor, ang_velocity: Tensor, targets: Tensor, torso_positions: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Body-frame velocities, roll, pitch, yaw and the angle to a target, as in the locomotion tasks.

    The angle to the target is computed in the x-z plane, minus yaw, as in the original.
    """
    roll, pitch, yaw = get_euler_xyz(torso_quat)
    offset = targets - torso_positions
    angle_to_target = torch.atan2(offset[..., 2], offset[..., 0]) - yaw
    vel_loc, angvel_loc = quat_rotate_inverse(torso_quat, velocity), quat_rotate_inverse(torso_quat, ang_velocity)
    return vel_loc, angvel_loc, roll, pitch, yaw, angle_to_target


# rigid transforms: rotation q, then translation t


def tf_apply(q: Tensor, t: Tensor, v: Tensor) -> Tensor:
    """Transform points."""
    return quat_apply(q, v) + t


def tf_vector(q: Tensor, v: Tensor) -> Tensor:
    """Transform directions."""
    return quat_apply(q, v)


def tf_inverse(q: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Invert a transform."""
    inverse = quat_conjugate(q)
    return inverse, -quat_apply(inverse, t)


def tf_combine(q1: Tensor, t1: Tensor, q2: Tensor, t2: Tensor) -> tuple[Tensor, Tensor]:
    """Compose transforms: the second, then the first."""
    return quat_mul(q1, q2), quat_apply(q1, t2) + t1


def local_to_world_space(pos_offset_local: Tensor, pose_global: Tensor) -> Tensor:
    """Points ``(n, 3)`` of a body's frame in the world, for poses ``(n, 7)`` of position and quaternion."""
    return tf_apply(pose_global[..., 3:7], pose_global[..., 0:3], pos_offset_local)


def normalise_quat_in_pose(pose: Tensor) -> Tensor:
    """Poses ``(n, 7)`` with unit quaternions (a new tensor: the original writes to its argument)."""
    return torch.cat([pose[..., 0:3], quat_unit(pose[..., 3:7])], dim=-1)
