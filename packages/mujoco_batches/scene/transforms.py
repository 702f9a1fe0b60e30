"""Vectors, quaternions (xyzw) and rigid transforms as plain objects, for poses of assets and actors."""

from __future__ import annotations

import math

import numpy as np


class Vec3:
    """A vector."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> None:
        self.x, self.y, self.z = float(x), float(y), float(z)

    def __iter__(self):
        return iter((self.x, self.y, self.z))

    def __deepcopy__(self, memo: dict) -> Vec3:
        return Vec3(self.x, self.y, self.z)

    def __add__(self, other: Vec3) -> Vec3:
        return Vec3(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other: Vec3) -> Vec3:
        return Vec3(self.x - other.x, self.y - other.y, self.z - other.z)

    def __neg__(self) -> Vec3:
        return Vec3(-self.x, -self.y, -self.z)

    def __mul__(self, factor: float) -> Vec3:
        return Vec3(self.x * factor, self.y * factor, self.z * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Vec3:
        return Vec3(self.x / divisor, self.y / divisor, self.z / divisor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vec3) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Vec3({self.x:g}, {self.y:g}, {self.z:g})"

    def dot(self, other: Vec3) -> float:
        """Return the inner product."""
        return self.x * other.x + self.y * other.y + self.z * other.z

    def cross(self, other: Vec3) -> Vec3:
        """Return the vector product."""
        return Vec3(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )

    def length(self) -> float:
        """Return the Euclidean norm."""
        return math.sqrt(self.dot(self))

    def normalize(self) -> Vec3:
        """Return the vector of length 1 in this direction; zero stays zero."""
        length = self.length()
        return self / length if length > 0 else Vec3()


class Quat:
    """A rotation as a unit quaternion, components x, y, z, w."""

    __slots__ = ("w", "x", "y", "z")

    def __init__(self, x: float = 0.0, y: float = 0.0, z: float = 0.0, w: float = 1.0) -> None:
        self.x, self.y, self.z, self.w = float(x), float(y), float(z), float(w)

    @staticmethod
    def from_axis_angle(axis: Vec3, angle: float) -> Quat:
        """Return the rotation by ``angle``, rad, about ``axis`` of any length."""
        unit = axis.normalize() * math.sin(0.5 * angle)
        return Quat(unit.x, unit.y, unit.z, math.cos(0.5 * angle))

    @staticmethod
    def from_euler_zyx(roll: float, pitch: float, yaw: float) -> Quat:
        """Return the rotation by roll about x, then pitch about y, then yaw about z (all fixed axes), rad."""
        x = Quat.from_axis_angle(Vec3(1, 0, 0), roll)
        y = Quat.from_axis_angle(Vec3(0, 1, 0), pitch)
        z = Quat.from_axis_angle(Vec3(0, 0, 1), yaw)
        return z * y * x

    def to_euler_zyx(self) -> tuple[float, float, float]:
        """Return roll, pitch, yaw, rad: the reverse of ``from_euler_zyx``."""
        x, y, z, w = self
        roll = math.atan2(2 * (w * x + y * z), w * w - x * x - y * y + z * z)
        pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
        yaw = math.atan2(2 * (w * z + x * y), w * w + x * x - y * y - z * z)
        return roll, pitch, yaw

    def __iter__(self):
        return iter((self.x, self.y, self.z, self.w))

    def __mul__(self, other: Quat) -> Quat:
        """Return the rotation ``other`` followed by this one."""
        a, b = self, other
        return Quat(
            a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y,
            a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x,
            a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w,
            a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quat) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Quat({self.x:g}, {self.y:g}, {self.z:g}, {self.w:g})"

    def inverse(self) -> Quat:
        """Return the inverse rotation."""
        return Quat(-self.x, -self.y, -self.z, self.w)

    def normalize(self) -> Quat:
        """Return the quaternion of length 1; zero becomes no rotation."""
        length = math.sqrt(sum(part * part for part in self))
        return Quat(*(part / length for part in self)) if length > 0 else Quat()

    def rotate(self, vector: Vec3) -> Vec3:
        """Return the rotated vector."""
        u = Vec3(self.x, self.y, self.z)
        t = u.cross(vector) * 2.0
        return vector + t * self.w + u.cross(t)


class Transform:
    """A rotation ``r`` followed by a translation ``p``: the pose of a frame."""

    __slots__ = ("p", "r")

    def __init__(self, p: Vec3 | None = None, r: Quat | None = None) -> None:
        self.p = Vec3() if p is None else p
        self.r = Quat() if r is None else r

    def __mul__(self, other: Transform) -> Transform:
        """Return ``other`` followed by this transform."""
        return Transform(self.p + self.r.rotate(other.p), self.r * other.r)

    def __repr__(self) -> str:
        return f"Transform(p={self.p}, r={self.r})"

    def inverse(self) -> Transform:
        """Return the inverse transform."""
        back = self.r.inverse()
        return Transform(-back.rotate(self.p), back)

    def transform_point(self, point: Vec3) -> Vec3:
        """Return a point of this frame in the outer frame."""
        return self.p + self.r.rotate(point)

    def transform_vector(self, vector: Vec3) -> Vec3:
        """Return a direction of this frame in the outer frame."""
        return self.r.rotate(vector)


def pose_array(pose: Transform) -> np.ndarray:
    """Return a pose as position 3 and quaternion **wxyz** 4, MuJoCo's order, ``(7,)``."""
    r = pose.r.normalize()
    return np.array([pose.p.x, pose.p.y, pose.p.z, r.w, r.x, r.y, r.z])


def pose_object(values: np.ndarray) -> Transform:
    """Return the pose of position 3 and quaternion wxyz 4."""
    x, y, z, w, qx, qy, qz = (float(v) for v in values)
    return Transform(Vec3(x, y, z), Quat(qx, qy, qz, w))
