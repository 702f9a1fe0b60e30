"""Meshes of Collada files (.dae), which MuJoCo does not read."""

import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_log = logging.getLogger("isaacgym_mujoco")


@cache
def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices, ``(n, 3)``, m, and triangles, ``(m, 3)``, of a file's meshes where its scene places them.

    The file's axes are kept, as viewers of URDFs do: ``<up_axis>`` has no effect. Convex polygons are divided; strips,
    fans and skins are not read.

    Raises:
        ValueError: the file is not read, no triangle is in its scene, or its vertices are not finite.
    """
    # slow to import, and most robots have no such mesh
    from collada import Collada
    from collada.common import DaeBrokenRefError, DaeError, DaeIncompleteError, DaeUnsupportedError

    # what a mesh does not need may be missing, as pictures and materials
    missing = [DaeBrokenRefError, DaeIncompleteError, DaeUnsupportedError]
    try:
        file = Collada(str(path), ignore=missing)
    except (DaeError, AttributeError, LookupError, TypeError, ValueError) as error:  # it checks little of a file's form
        raise ValueError(f"not read as Collada: {error}") from error
    for error in file.errors:
        _log.warning("%s: left out: %s", path, error)
    scenes = [file.scene] if file.scene else file.scenes
    points, triangles, count = [], [], 0
    for mesh in (mesh for scene in scenes for mesh in scene.objects("geometry")):
        mirrored = np.linalg.det(mesh.matrix[:3, :3]) < 0
        for part in mesh.primitives():
            corners = _triangles(part)
            if not len(corners):
                continue
            used, index = np.unique(corners, return_inverse=True)
            index = index.reshape(-1, 3) + count
            triangles.append(index[:, ::-1] if mirrored else index)
            points.append(part.vertex[used])
            count += len(used)
    if not count:
        raise ValueError("no triangle is in its scene")
    unit = file.assetInfo and file.assetInfo.unitmeter  # unknown: m
    vertices = np.concatenate(points).astype(np.float64) * (unit or 1.0)
    if not np.isfinite(vertices).all():
        raise ValueError("its vertices are not finite")
    return vertices, np.concatenate(triangles)


def _triangles(part: Any) -> np.ndarray:
    """Return the corners of a primitive's triangles, ``(m, 3)``; none of lines."""
    if hasattr(part, "triangleset"):  # polygons
        part = part.triangleset()
    corners = part.vertex_index
    return corners if corners is not None and corners.shape[1:] == (3,) else np.empty((0, 3), int)
