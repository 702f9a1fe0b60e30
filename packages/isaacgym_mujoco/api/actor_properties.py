"""Properties of an actor in one environment: changes of masses and of scale, and as rows of MuJoCo's model."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
import copy

import mujoco
import numpy as np

from mujoco_batches.engine.layout import Actor, Layout
from mujoco_batches.scene.properties import Mat33, RigidBodyProperties
from mujoco_batches.scene.transforms import Vec3

_MESH = int(mujoco.mjtGeom.mjGEOM_MESH)
_SLIDE = int(mujoco.mjtJoint.mjJNT_SLIDE)


def matrix(inertia: Mat33) -> np.ndarray:
    """Return an inertia as an array, ``(3, 3)``."""
    return np.array([list(inertia.x), list(inertia.y), list(inertia.z)])


def with_inertias(new: list[RigidBodyProperties], old: list[RigidBodyProperties]) -> list[RigidBodyProperties]:
    """Copy ``new``, with inertias scaled in proportion for bodies of which only the mass differs from ``old``.

    Isaac Gym recomputes inertias in the same way.
    """
    bodies = [body.__deepcopy__({}) for body in new]
    for body, before in zip(bodies, old):
        if body.mass != before.mass and np.allclose(matrix(body.inertia), matrix(before.inertia), rtol=1e-6, atol=0):
            body.inertia = Mat33.of(matrix(body.inertia) * (body.mass / before.mass))
    return bodies


def scaled(bodies: list[RigidBodyProperties], factor: float) -> list[RigidBodyProperties]:
    """Return the properties of bodies with all lengths times ``factor`` and equal density."""
    bodies = copy.deepcopy(bodies)
    for body in bodies:
        body.mass *= factor**3
        body.com = Vec3(*(factor * x for x in body.com))
        body.inertia = Mat33.of(matrix(body.inertia) * factor**5)
    return bodies


def check_limits(layout: Layout, dofs: slice, rows: np.ndarray) -> None:
    """Check that the model has the limits that ``DOF_PROPERTIES`` ask for, ``(..., dofs)``.

    Raises:
        NotImplementedError: a joint has limits, and had none in the first environment when the scene was compiled.
    """
    joints = layout.dof_joint[dofs]
    asked = np.atleast_2d(rows["hasLimits"].astype(bool)).any(axis=0)
    for joint in joints[asked & ~layout.model.jnt_limited[joints].astype(bool)]:
        name = layout.model.joint(int(joint)).name.split("/", 1)[1]
        raise NotImplementedError(
            f"set_actor_dof_properties: joint {name!r} gets limits with hasLimits; this works before prepare_sim, and "
            "in all environments alike"
        )


def check_scale(actor: Actor, scale: float) -> None:
    """Check that an actor can have a scale.

    Raises:
        ValueError: the scale is not positive.
        NotImplementedError: the actor has collision meshes.
    """
    if not scale > 0:
        raise ValueError(f"set_actor_scale: the scale must be positive, got {scale:g}")
    if scale != actor.scale and (actor.asset.model.geom_type == _MESH).any():
        raise NotImplementedError(
            f"set_actor_scale: {actor.asset.name} has collision meshes; only boxes, spheres, cylinders and capsules "
            "can be scaled"
        )


def sizes(layout: Layout, number: int, asset: mujoco.MjModel, scale: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return rows of MuJoCo's model for an actor: sizes and positions of shapes, bodies and joints.

    ``asset`` is the actor's asset compiled alone, with shapes, bodies and joints in the order of the layout.
    """
    actor = layout.places[number]
    geoms, bodies = layout.geoms(number), layout.bodies[actor.bodies]
    joints = layout.dof_joint[actor.dofs]
    hinges = slice(len(asset.jnt_type) - len(joints), None)  # and slides, without the free joint
    return {
        "geom_size": (geoms, scale * asset.geom_size),
        "geom_pos": (geoms, scale * asset.geom_pos),
        "geom_quat": (geoms, asset.geom_quat),
        "geom_rbound": (geoms, scale * asset.geom_rbound),
        "geom_aabb": (geoms, scale * asset.geom_aabb),
        "body_pos": (bodies[1:], scale * asset.body_pos[2:]),  # the root's position is the actor's pose
        "body_quat": (bodies[1:], asset.body_quat[2:]),
        "jnt_pos": (joints, scale * asset.jnt_pos[hinges]),
        "jnt_axis": (joints, asset.jnt_axis[hinges]),
    }


def scaled_limits(properties: np.ndarray, actor: Actor, factor: float) -> np.ndarray:
    """Return DOF properties with the limits of prismatic joints times ``factor``."""
    model, rows = actor.asset.model, properties.copy()
    slides = np.array([int(model.joint(name).type[0]) == _SLIDE for name in actor.asset.dof_names], dtype=bool)
    for name in ("lower", "upper"):
        rows[name][slides & rows["hasLimits"].astype(bool)] *= factor
    return rows
