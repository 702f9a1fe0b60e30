"""What single prims of a USD file say by UsdPhysics, and which of them have no effect."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from math import isnan
from typing import Any

import mujoco
import numpy as np

from mujoco_batches.assets.urdf import AssetError

COLLIDE = "physics:collisionEnabled"


def is_body(prim: Any) -> bool:
    return "PhysicsRigidBodyAPI" in prim.GetAppliedSchemas() and value(prim, "physics:rigidBodyEnabled", True)


def body_of(prim: Any) -> Any:
    """Return the body that a prim belongs to: itself or the nearest above; None if there is none."""
    while prim and not is_body(prim):
        prim = prim.GetParent()
    return prim or None


def collider_of(prim: Any) -> Any:
    """Return the prim that makes a shape collide: itself or one above, up to its body; None if there is none."""
    while prim:
        if "PhysicsCollisionAPI" in prim.GetAppliedSchemas():
            return prim
        if is_body(prim):
            return None
        prim = prim.GetParent()
    return None


def collides(prim: Any) -> bool:
    collider = collider_of(prim)
    return collider is not None and bool(value(collider, COLLIDE, True))


def approximation(shape: Any) -> str:
    """Return the approximation of a mesh: its own, or that of the prim that makes it collide."""
    name = "physics:approximation"
    return str(value(shape, name, None) or value(collider_of(shape), name, "none"))


def filtered(prim: Any) -> list[Any]:
    return prim.GetRelationship("physics:filteredPairs").GetTargets()


def value(prim: Any, name: str, default: Any) -> Any:
    attribute = prim.GetAttribute(name)
    found = attribute.Get() if attribute else None
    return default if found is None else found


def number(prim: Any, name: str, default: float) -> float:
    """Return an attribute's number; one that is NaN is a ValueError that names it."""
    found = float(value(prim, name, default))
    if isnan(found):
        raise ValueError(f"{prim.GetPath()}: {name} is not a number")
    return found


def positive(prim: Any, name: str, default: float) -> float:
    """Return a length of a shape; one that is not positive is a ValueError that names it."""
    found = number(prim, name, default)
    if found <= 0:
        raise ValueError(f"{prim.GetPath()}: {name} must be positive, not {found:g}")
    return found


def physx(prim: Any, name: str, default: float) -> float:
    """Return a property of a joint by NVIDIA's schema, which OpenUSD does not know: of the joint, or of its axis."""
    for attribute in prim.GetAttributes():
        parts = attribute.GetName().split(":")
        if parts[0] in ("physxJoint", "physxJointAxis") and parts[-1] == name and attribute.Get() is not None:
            return number(prim, attribute.GetName(), default)
    return default


def without_scale(frame: np.ndarray, where: str) -> np.ndarray:
    """Return a pose with the rotation that is nearest to its axes."""
    left, _, right = np.linalg.svd(frame[:3, :3])
    turn = left @ right
    if np.linalg.det(turn) < 0:
        raise AssetError(f"{where}: it is mirrored, which a rigid body cannot be")
    rigid = frame.copy()
    rigid[:3, :3] = turn
    return rigid


def rotation(quat: Any) -> np.ndarray:
    """Return the matrix of a quaternion of USD; one of zeros, or None, is no rotation."""
    turn, numbers = np.eye(3).ravel(), np.zeros(4)
    if quat is not None:
        numbers = np.array([quat.GetReal(), *quat.GetImaginary()], dtype=float)
    if np.linalg.norm(numbers) > 1e-6:
        mujoco.mju_quat2Mat(turn, numbers / np.linalg.norm(numbers))
    return turn.reshape(3, 3)


def ignored(prims: list[Any], bodies: list[Any], joints: list[Any], shapes: list[Any]) -> str:
    """Return a line of the prims that have something that the engine has not; empty if there are none."""
    kinds = {
        "collision groups": lambda p: p.GetTypeName() == "PhysicsCollisionGroup",
        "filtered pairs of what is neither body nor shape": lambda p: filtered(p) and p not in (*bodies, *shapes),
        "collisions between the bodies of a joint": lambda p: p in joints and value(p, COLLIDE, False),
        "physics materials, except densities": lambda p: "PhysicsMaterialAPI" in p.GetAppliedSchemas(),
        "tendons": lambda p: any("Tendon" in api for api in p.GetPrimTypeInfo().GetAppliedAPISchemas()),
        "convex decompositions, which are one hull": lambda p: (
            p in shapes and p.GetTypeName() == "Mesh" and approximation(p) == "convexDecomposition"
        ),
    }
    found = {kind: [str(prim.GetPath()) for prim in prims if has(prim)] for kind, has in kinds.items()}
    return "; ".join(f"{kind} ({', '.join(paths)})" for kind, paths in found.items() if paths)
