"""Convex parts of collision meshes: of concave ones, if ``vhacdx`` is installed, and plates for flat ones."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false, reportMissingImports=false

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from mujoco_batches.assets import collada
from mujoco_batches.assets.urdf import COLLADA, Link, Shape, walk
from mujoco_batches.scene.params import AssetOptions

CONVEX = 0.5  # least fraction of its hull that a mesh must fill to be kept as one shape
MAX_VERTICES = 64
FLAT, THICKNESS = 1e-5, 1e-4  # relative extent of a flat mesh; m, thickness of the plate that replaces it


def available() -> bool:
    """Return whether ``vhacdx`` is installed."""
    return find_spec("vhacdx") is not None


def decompose(root: Link, options: AssetOptions) -> None:
    """Replace the concave meshes of all links by convex parts, with the limits of ``options.vhacd_params``."""
    params = options.vhacd_params
    vertices = min(int(params.max_num_vertices_per_ch), MAX_VERTICES)
    limits = int(params.resolution), int(params.max_convex_hulls), vertices
    for link in walk(root):
        shapes = []
        for shape in link.shapes:
            hulls = () if shape.mesh is None else parts(shape.mesh, tuple(shape.size), limits)
            shapes += [Shape("mesh", shape.size, shape.frame, shape.mesh, part) for part in hulls] or [shape]
        link.shapes = shapes


def thicken(root: Link) -> None:
    """Replace the flat meshes of all links by plates, because MuJoCo computes no hull of coplanar vertices."""
    for link in walk(root):
        for shape in link.shapes:
            if shape.mesh is not None:
                vertices = read(shape.mesh, tuple(shape.size))[0] if shape.part is None else shape.part
                flat = plate(vertices)
                shape.part = shape.part if flat is None else flat


def plate(vertices: np.ndarray) -> np.ndarray | None:
    """Return the vertices of a flat mesh on both sides of its plane, ``(2 n, 3)``; None if it is not flat."""
    _, extents, axes = np.linalg.svd(vertices - vertices.mean(axis=0), full_matrices=False)
    if extents[2] > FLAT * extents[0]:
        return None
    return np.concatenate([vertices + side * 0.5 * THICKNESS * axes[2] for side in (-1.0, 1.0)])


@cache
def parts(mesh: Path, scale: tuple[float, ...], limits: tuple[int, int, int]) -> tuple[np.ndarray, ...]:
    """Return the vertices of a mesh's convex parts, each ``(n, 3)``, scaled; none where the mesh is nearly convex."""
    import vhacdx

    vertices, triangles = read(mesh, scale)
    flat = plate(vertices)
    if flat is not None:
        return (flat,)
    a, b, c = (vertices[triangles[:, k]] for k in range(3))
    volume = abs(np.einsum("ij,ij->i", a, np.cross(b, c)).sum()) / 6
    if volume > CONVEX * _hull_volume(vertices):
        return ()
    resolution, count, corners = limits
    hulls = vhacdx.compute_vhacd(
        vertices,
        triangles.astype(np.uint32),
        maxConvexHulls=count,
        resolution=resolution,
        maxNumVerticesPerCH=corners,
        asyncACD=False,  # deterministic
    )
    return tuple(np.asarray(points, dtype=np.float64) for points, _ in hulls)


def read(mesh: Path, scale: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices and triangles of a mesh's file, in the file's own frame, scaled."""
    if mesh.suffix.lower() == COLLADA:
        vertices, triangles = collada.read(mesh)
        return vertices * scale, triangles
    # MuJoCo transforms a mesh to its principal frame; shells need no volume
    model = _compile_mesh(mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL, file=str(mesh), scale=scale)
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, model.mesh_quat[0])
    return model.mesh_vert.astype(np.float64) @ turn.reshape(3, 3).T + model.mesh_pos[0], model.mesh_face


def _hull_volume(vertices: np.ndarray) -> float:
    return float(_compile_mesh(mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX, uservert=vertices.ravel()).body_mass[1])


def _compile_mesh(inertia: mujoco.mjtMeshInertia, **source: Any) -> mujoco.MjModel:
    """Return a model of a mesh, from a file or from vertices."""
    spec = mujoco.MjSpec()
    spec.compiler.balanceinertia = True  # that of a plate is at its limit
    spec.add_mesh(name="mesh", inertia=inertia, **source)
    body = spec.worldbody.add_body()
    # a geom that collides with nothing needs no hull, which flat meshes have not
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="mesh", density=1.0, contype=0, conaffinity=0)
    return spec.compile()
