"""Vertices of Collada files (.dae), which MuJoCo does not read."""

import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import numpy as np


@cache
def vertices(path: Path) -> np.ndarray:
    """Return the vertices of a file's geometries where its scene places them, ``(n, 3)``, m.

    The file's axes are kept, as viewers of URDFs do: ``<up_axis>`` has no effect.

    Raises:
        ValueError: the file is not XML, or has no vertices.
    """
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError as error:
        raise ValueError(f"not XML: {error}") from error
    geometries = {g.get("id", ""): _positions(g) for g in root.iterfind(".//{*}geometry")}
    parts: list[np.ndarray] = []
    for scene in root.iterfind(".//{*}visual_scene"):
        _place(scene, np.eye(4), geometries, parts)
    points = np.concatenate(parts or list(geometries.values()) or [np.empty((0, 3))])
    if not len(points):
        raise ValueError("no geometry has vertices")
    unit = root.find("{*}asset/{*}unit")
    return points * float("1" if unit is None else unit.get("meter", "1"))


def _place(node: ET.Element, frame: np.ndarray, geometries: dict[str, np.ndarray], parts: list[np.ndarray]) -> None:
    """Append the vertices of a node's geometries, and of its children's, in the scene's frame."""
    for element in node:
        match element.tag.rpartition("}")[2]:
            case "matrix" | "translate" | "rotate" | "scale" as kind:
                frame = frame @ _transform(kind, _numbers(element))
            case "instance_geometry":
                points = geometries.get(element.get("url", "").removeprefix("#"), np.empty((0, 3)))
                parts.append(points @ frame[:3, :3].T + frame[:3, 3])
            case "node":
                _place(element, frame, geometries, parts)


def _transform(kind: str, numbers: np.ndarray) -> np.ndarray:
    if kind == "matrix":
        return numbers.reshape(4, 4)
    out = np.eye(4)
    if kind == "translate":
        out[:3, 3] = numbers
    elif kind == "scale":
        out[:3, :3] = np.diag(numbers)
    else:  # an axis and an angle in degrees
        axis, angle = numbers[:3] / np.linalg.norm(numbers[:3]), np.deg2rad(numbers[3])
        cross = np.cross(np.eye(3), axis)
        out[:3, :3] += np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross
    return out


def _positions(geometry: ET.Element) -> np.ndarray:
    """Return the vertices of a geometry, ``(n, 3)``."""
    source = geometry.find(".//{*}vertices/{*}input[@semantic='POSITION']")
    name = "" if source is None else source.get("source", "").removeprefix("#")
    array = geometry.find(f".//{{*}}source[@id='{name}']/{{*}}float_array")
    return np.empty((0, 3)) if array is None else _numbers(array).reshape(-1, 3)


def _numbers(element: ET.Element) -> np.ndarray:
    return np.array((element.text or "").split(), dtype=np.float64)
