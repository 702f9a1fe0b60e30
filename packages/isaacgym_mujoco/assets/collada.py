"""Meshes of Collada files (.dae), which MuJoCo does not read."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

_MIN_POINTS = 4  # of a hull with a volume
_LENGTHS = {"matrix": 16, "translate": 3, "rotate": 4, "scale": 3}
_NO_TRIANGLES = np.empty((0, 3), np.int64)
Mesh = tuple[np.ndarray, np.ndarray]


@cache
def read(path: Path) -> Mesh:
    """Return vertices, ``(n, 3)``, m, and triangles, ``(m, 3)``, of a file's geometries where its scene places them.

    The file's axes are kept, as viewers of URDFs do: ``<up_axis>`` has no effect.

    Raises:
        ValueError: the file is not XML, its scene places nothing, or its vertices are too few or not finite.
    """
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError as error:
        raise ValueError(f"not XML: {error}") from error
    file = _File(root)
    scenes = root.findall(".//{*}visual_scene")
    for scene in scenes:
        file.place(scene, np.eye(4), ())
    placed = file.placed if scenes else list(file.geometries.values())
    if scenes and not placed and file.geometries:
        raise ValueError("its scene places no geometry")
    points, triangles = [np.empty((0, 3))], [_NO_TRIANGLES]
    for vertices, faces in placed:
        triangles.append(faces + sum(map(len, points)))
        points.append(vertices)
    unit = root.find("{*}asset/{*}unit")
    out = np.concatenate(points) * float("1" if unit is None else unit.get("meter", "1"))
    if not len(out):
        raise ValueError("no geometry has vertices")
    if len(out) < _MIN_POINTS or not np.isfinite(out).all():
        raise ValueError(f"a mesh needs {_MIN_POINTS} vertices of finite numbers, and it has {len(out)} vertices")
    return out, np.concatenate(triangles)


class _File:
    """The geometries and nodes of a file by their names, and the meshes that are placed so far."""

    def __init__(self, root: ET.Element) -> None:
        self.geometries = {g.get("id", ""): _mesh(g) for g in root.iterfind(".//{*}geometry")}
        self.nodes = {n.get("id"): n for n in root.iterfind(".//{*}node") if n.get("id")}
        self.placed: list[Mesh] = []

    def place(self, node: ET.Element, frame: np.ndarray, above: tuple[ET.Element, ...]) -> None:
        """Place a node's geometries, and those of its children and the nodes that it names, in the scene's frame."""
        if node in above:
            raise ValueError(f"its node {node.get('id')} contains itself")
        for element in node:
            url = element.get("url", "").removeprefix("#")
            match element.tag.rpartition("}")[2]:
                case "matrix" | "translate" | "rotate" | "scale" as kind:
                    frame = frame @ _transform(kind, _numbers(element))
                case "instance_geometry" if url in self.geometries:
                    points, triangles = self.geometries[url]
                    triangles = triangles[:, ::-1] if np.linalg.det(frame[:3, :3]) < 0 else triangles  # mirrored
                    self.placed.append((points @ frame[:3, :3].T + frame[:3, 3], triangles))
                case "instance_node":
                    if url not in self.nodes:
                        raise ValueError(f"it places the node {url}, which it does not have")
                    self.place(self.nodes[url], frame, (*above, node))
                case "node":
                    self.place(element, frame, (*above, node))


def _transform(kind: str, numbers: np.ndarray) -> np.ndarray:
    if len(numbers) != _LENGTHS[kind]:
        raise ValueError(f"a <{kind}> has {_LENGTHS[kind]} numbers, not {len(numbers)}")
    if kind == "matrix":
        return numbers.reshape(4, 4)
    out = np.eye(4)
    if kind == "translate":
        out[:3, 3] = numbers
    elif kind == "scale":
        out[:3, :3] = np.diag(numbers)
    elif numbers[:3].any():  # an axis and an angle in degrees
        axis, angle = numbers[:3] / np.linalg.norm(numbers[:3]), np.deg2rad(numbers[3])
        cross = np.cross(np.eye(3), axis)
        out[:3, :3] += np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
    return out


def _mesh(geometry: ET.Element) -> Mesh:
    """Return vertices and triangles of a geometry; no triangles where they cannot be read, as a hull needs none."""
    points = _positions(geometry)
    try:
        triangles = np.concatenate([_NO_TRIANGLES, *_triangles(geometry)])
    except (ValueError, IndexError, KeyError):
        return points, _NO_TRIANGLES
    inside = ((triangles >= 0) & (triangles < len(points))).all()
    return points, triangles if inside else _NO_TRIANGLES


def _triangles(geometry: ET.Element) -> Iterator[np.ndarray]:
    """Yield the triangles of a geometry, which divide its convex polygons; strips and fans are left out."""
    for kind in ("triangles", "polylist", "polygons"):
        for element in geometry.iterfind(f".//{{*}}{kind}"):
            inputs = {i.get("semantic"): int(i.get("offset", "0")) for i in element.iterfind("{*}input")}
            for p in element.iterfind("{*}p"):
                corners = _numbers(p).astype(np.int64)[inputs["VERTEX"] :: 1 + max(inputs.values())]
                vcount = element.find("{*}vcount")
                counts = np.array([len(corners)]) if vcount is None else _numbers(vcount).astype(np.int64)
                counts = np.full(len(corners) // 3, 3) if kind == "triangles" else counts
                starts = np.cumsum(counts) - counts
                for k in range(1, counts.max(initial=0) - 1):
                    first = starts[counts > k + 1]
                    yield np.stack([corners[first], corners[first + k], corners[first + k + 1]], axis=1)


def _positions(geometry: ET.Element) -> np.ndarray:
    """Return the vertices of a geometry, ``(n, 3)``."""
    entry = geometry.find(".//{*}vertices/{*}input[@semantic='POSITION']")
    name = "" if entry is None else entry.get("source", "").removeprefix("#")
    source = geometry.find(f".//{{*}}source[@id='{name}']")
    array = None if source is None else source.find("{*}float_array")
    if source is None or array is None:
        return np.empty((0, 3))
    accessor, numbers = source.find(".//{*}accessor"), _numbers(array)
    stride = 3 if accessor is None else int(accessor.get("stride", "3"))
    numbers = numbers if accessor is None else numbers[int(accessor.get("offset", "0")) :]
    if stride < 3 or len(numbers) % stride:
        raise ValueError(f"its geometry {geometry.get('id')} has {len(numbers)} numbers, {stride} for each vertex")
    return numbers.reshape(-1, stride)[:, :3]


def _numbers(element: ET.Element) -> np.ndarray:
    return np.array((element.text or "").split(), dtype=np.float64)
