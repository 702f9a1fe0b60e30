"""Ground in MuJoCo's models: height fields and boxes of the world's body."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from typing import Any

import mujoco
import numpy as np

from envcoder_bench.sim.ground import Ground
from isaacgym_mujoco.physics.height_field import add_height_field

LEAST_FRICTION = 1e-3  # MuJoCo Warp's single precision fails with less
_PLANE = mujoco.mjtGeom.mjGEOM_PLANE


def put_ground(spec: mujoco.MjSpec, ground: Ground) -> None:
    """Replace the planes of the world's body by ``ground``; contacts take its friction, not the robot's.

    The masks and the contact parameters are those of the file's first plane, MuJoCo's defaults without one.
    """
    planes = [geom for geom in spec.worldbody.geoms if geom.type == _PLANE]
    names = ("contype", "conaffinity", "condim", "solref", "solimp", "rgba", "group")
    values = [getattr(planes[0], name) for name in names] if planes else []
    like = {name: np.copy(value) if np.ndim(value) else int(value) for name, value in zip(names, values)}
    rolling = np.copy(planes[0].friction)[1:] if planes else (0.005, 0.0001)
    for plane in planes:
        spec.delete(plane)
    # the geom of higher priority decides on friction
    priority = 1 + max((int(geom.priority) for geom in spec.geoms), default=0)
    for number, field in enumerate(ground.height_fields):
        corner = np.array([*field.corner, 0.0])
        geom = add_height_field(spec, f"height field {number}", field.heights, (field.spacing, field.spacing), corner)
        _set_surface(geom, like, priority, field.friction, rolling)
    for number, box in enumerate(ground.boxes):
        geom = spec.worldbody.add_geom(
            name=f"box {number}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=list(box.center),
            size=[0.5 * length for length in box.size],
            quat=[np.cos(0.5 * box.yaw), 0.0, 0.0, np.sin(0.5 * box.yaw)],
        )
        _set_surface(geom, like, priority, box.friction, rolling)


def _set_surface(geom: Any, like: dict[str, Any], priority: int, friction: float, rolling: Any) -> None:
    for name, value in like.items():
        setattr(geom, name, value)
    geom.priority = priority
    geom.friction = [max(friction, LEAST_FRICTION), *rolling]
