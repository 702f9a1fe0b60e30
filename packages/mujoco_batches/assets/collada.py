"""Meshes of Collada files (.dae), which MuJoCo does not read."""

import io
import logging
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

_log = logging.getLogger("mujoco_batches")
# the elements of meshes and scenes; pycollada leaves out a mesh if any other element is missing or unknown
_LIBRARIES = {"asset", "library_geometries", "library_nodes", "library_visual_scenes", "scene"}
_MESH = {"source", "vertices", "triangles", "polylist", "polygons"}
# a few nodes that place each other can stand for any number of meshes
MOST_NODES, MOST_CORNERS = 10_000, 5_000_000  # most nodes in a scene; most corners of all its triangles
_NODE = {"node", "instance_geometry", "instance_node", "matrix", "translate", "rotate", "scale", "lookat", "skew"}


@cache
def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices, ``(n, 3)``, m, and triangles, ``(m, 3)``, of a file's meshes where its scene places them.

    The file's axes are kept, as viewers of URDFs do: ``<up_axis>`` has no effect. Polygons are divided as convex ones;
    strips, fans, lines and skins are not read.

    Raises:
        ValueError: the file is not read, no triangle is in its scene, its vertices are not finite, or its scene has
            more than MOST_NODES nodes or MOST_CORNERS corners of triangles.
    """
    from collada import Collada, DaeError  # slow to import, and most robots have no such mesh

    try:
        file = Collada(io.BytesIO(_geometry_of(path)), ignore=[DaeError])
        for error in file.errors:
            _log.warning("%s: left out: %s", path, error)
        points, triangles = _placed(file)
    except (
        ET.ParseError,
        DaeError,
        AttributeError,
        LookupError,
        TypeError,
        RecursionError,
    ) as error:  # it checks little of a file's form
        raise ValueError(f"not read as Collada: {error}") from error
    if not triangles:
        raise ValueError(f"no triangle is in its scene{''.join(f'; {error}' for error in file.errors[:1])}")
    unit = file.assetInfo and file.assetInfo.unitmeter  # unknown: m
    vertices = np.concatenate(points).astype(np.float64) * (unit or 1.0)
    if not np.isfinite(vertices).all():
        raise ValueError("its vertices are not finite")
    return vertices, np.concatenate(triangles)


def _geometry_of(path: Path) -> bytes:
    """Return a file's geometry, without materials and other parts."""
    root = ET.parse(path).getroot()
    _keep(root, _LIBRARIES)
    for mesh in root.iterfind(".//{*}mesh"):
        _keep(mesh, _MESH)
        for numbers in mesh.iterfind(".//{*}float_array"):
            if "nan" in (numbers.text or "").lower():  # pycollada reads 0
                raise ValueError("its vertices are not finite")
    for polygons in root.iterfind(".//{*}polylist"):
        counts, corners = (re.findall(r"\d+", polygons.findtext(tag) or "") for tag in ("{*}vcount", "{*}p"))
        if sum(map(int, counts)) > len(corners):
            raise LookupError("its polygons have more corners than are given")
    for node in root.iterfind(".//{*}node"):
        _keep(node, _NODE)
    for instance in root.iterfind(".//{*}instance_geometry"):
        _keep(instance, set())
    return ET.tostring(root)


def _keep(element: ET.Element, tags: set[str]) -> None:
    """Remove an element's other children."""
    element[:] = [child for child in element if child.tag.rpartition("}")[2] in tags]


def _size(node: Any, sizes: dict[int, int]) -> int:
    """Return the number of nodes that a node of a scene stands for; ``sizes`` keeps the results by id."""
    if id(node) not in sizes:
        sizes[id(node)] = 1 + sum(_size(child, sizes) for child in getattr(node, "children", ()))
    return sizes[id(node)]


def _placed(file: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return vertices and triangles of each part of a scene's meshes; triangles count the vertices of all."""
    points, triangles, count, placed = [], [], 0, 0
    scenes = [file.scene] if file.scene else file.scenes
    sizes: dict[int, int] = {}
    nodes = sum(_size(node, sizes) for scene in scenes for node in scene.nodes)
    if nodes > MOST_NODES:
        raise ValueError(f"its scene has more than {MOST_NODES:,} nodes, with those that nodes place in each other")
    for mesh in (mesh for scene in scenes for mesh in scene.objects("geometry")):
        mirrored = np.linalg.det(mesh.matrix[:3, :3]) < 0
        for part in mesh.primitives():
            corners = (part.triangleset() if hasattr(part, "triangleset") else part).vertex_index
            if corners is None or not len(corners):
                continue
            if corners.min() < 0:
                raise LookupError(f"a triangle has the vertex {corners.min()}")
            placed += corners.size
            if placed > MOST_CORNERS:
                raise ValueError(f"its scene has more than {MOST_CORNERS:,} corners of triangles: simplify the mesh")
            used, index = np.unique(corners, return_inverse=True)
            index = index.reshape(-1, 3) + count
            triangles.append(index[:, ::-1] if mirrored else index)
            points.append(part.vertex[used])
            count += len(used)
    return points, triangles
