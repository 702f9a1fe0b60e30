"""Properties of joints, bodies, shapes, tendons and actuators, as plain objects for task code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mujoco_batches.scene.transforms import Quat, Vec3

MAX_FLOAT = float(np.finfo(np.float32).max)  # Isaac Gym's value for a missing limit
DEFAULT_VELOCITY = 100.0  # rad/s or m/s, if the file does not give a limit

DOF_PROPERTIES = np.dtype(
    [
        ("hasLimits", "?"),
        ("lower", "f4"),
        ("upper", "f4"),
        ("driveMode", "i4"),
        ("velocity", "f4"),
        ("effort", "f4"),
        ("stiffness", "f4"),
        ("damping", "f4"),
        ("friction", "f4"),
        ("armature", "f4"),
    ],
    align=True,  # torch.from_numpy can then take a column, as in Isaac Gym
)


class Mat33:
    """A 3 by 3 matrix by its rows ``x``, ``y``, ``z``."""

    def __init__(self, x: Vec3 | None = None, y: Vec3 | None = None, z: Vec3 | None = None) -> None:
        self.x, self.y, self.z = x or Vec3(), y or Vec3(), z or Vec3()

    @staticmethod
    def of(values: np.ndarray) -> Mat33:
        return Mat33(*(Vec3(*row) for row in values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mat33) and (self.x, self.y, self.z) == (other.x, other.y, other.z)

    def __hash__(self) -> int:
        return hash((self.x, self.y, self.z))

    def __deepcopy__(self, memo: dict) -> Mat33:
        return Mat33(Vec3(*self.x), Vec3(*self.y), Vec3(*self.z))


class Scalars:
    """Properties whose numbers can be set from arrays and tensors of one element, as task code does."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), (float, int)):  # the field's default
            value = type(getattr(type(self), name))(value.item() if hasattr(value, "item") else value)
        object.__setattr__(self, name, value)

    def __deepcopy__(self, memo: dict) -> Any:
        """Copy without overhead, because tasks copy the properties of thousands of actors."""
        new = object.__new__(type(self))
        for name, value in vars(self).items():
            new.__dict__[name] = value if isinstance(value, (int, float)) else value.__deepcopy__(memo)
        return new


@dataclass
class RigidBodyProperties(Scalars):
    """Mass, kg; centre of mass in the body's frame, m; inertia about it along the body's axes, kg m^2."""

    mass: float = 0.0
    com: Vec3 = field(default_factory=Vec3)
    inertia: Mat33 = field(default_factory=Mat33)
    invMass: float = 0.0
    invInertia: Mat33 = field(default_factory=Mat33)
    flags: int = 0


@dataclass
class RigidShapeProperties(Scalars):
    friction: float = 1.0
    rolling_friction: float = 0.0
    torsion_friction: float = 0.0
    restitution: float = 0.0
    compliance: float = 0.0
    thickness: float = 0.0
    filter: int = 0
    contact_offset: float = 0.02
    rest_offset: float = 0.0


@dataclass
class IndexRange(Scalars):
    """The shapes of a body among those of its asset or actor."""

    start: int = 0
    count: int = 0


@dataclass
class TendonProperties(Scalars):
    stiffness: float = 0.0
    damping: float = 0.0
    limit_stiffness: float = 1.0
    fixed_spring_rest_length: float = 0.0
    lower_limit: float = 0.0
    upper_limit: float = 0.0


@dataclass
class ActuatorProperties(Scalars):
    control_limited: bool = False
    force_limited: bool = False
    lower_control_limit: float = 0.0
    upper_control_limit: float = 0.0
    lower_force_limit: float = 0.0
    upper_force_limit: float = 0.0
    kp: float = 0.0
    kv: float = 0.0
    motor_effort: float = 0.0
    type: int = 0


def body_properties(mass: float, com: np.ndarray, quat: np.ndarray, moments: np.ndarray) -> RigidBodyProperties:
    """Return a body's properties from MuJoCo's principal moments and their orientation, wxyz."""
    w, x, y, z = (float(v) for v in quat)
    axes = np.array([list(Quat(x, y, z, w).rotate(Vec3(*unit))) for unit in np.eye(3)]).T
    inertia = axes @ np.diag(moments) @ axes.T
    inverse = axes @ np.diag(1.0 / np.maximum(moments, 1e-30)) @ axes.T
    return RigidBodyProperties(
        mass=float(mass),
        com=Vec3(*com),
        inertia=Mat33.of(inertia),
        invMass=1.0 / max(float(mass), 1e-30),
        invInertia=Mat33.of(inverse),
    )
