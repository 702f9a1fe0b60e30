"""Uneven ground: height fields and triangle meshes as a grid of heights, MuJoCo's hfield."""

from dataclasses import dataclass, field

import numpy as np

from mujoco_batches.scene.params import HeightFieldParams, TriangleMeshParams, tell_ignored
from mujoco_batches.scene.transforms import Transform, pose_object

MAX_NODES = 25_000_000  # most nodes of a rasterized mesh: 100 MB
SPACING = 0.05  # m, spacing of the grid for meshes that are not height fields


@dataclass
class Terrain:
    """Ground, shared by all environments.

    Attributes:
        heights: ``(nx, ny)`` float32, m, along z of the terrain's own frame.
        spacing: distance of the nodes along x and y, m.
        pose: the frame of node ``[0, 0]`` at height 0.
        friction: of the surface.
    """

    heights: np.ndarray
    spacing: tuple[float, float]
    pose: Transform = field(default_factory=Transform)
    friction: float = 1.0


def from_heightfield(samples: np.ndarray, params: HeightFieldParams) -> Terrain:
    """Return the terrain of ``gym.add_heightfield``: samples in units of ``vertical_scale``, the first axis along x.

    Raises:
        ValueError: the number of samples is not ``nbRows`` times ``nbColumns``.
    """
    rows, columns = int(params.nbRows), int(params.nbColumns)
    samples = np.asarray(samples)
    if samples.ndim != 2 and samples.size == rows * columns:
        samples = samples.reshape(columns, rows)
    if samples.ndim != 2 or sorted(samples.shape) != sorted((rows, columns)) or min(samples.shape) < 2:
        raise ValueError(
            f"add_heightfield: samples of shape {samples.shape} do not fit nbRows={rows} and nbColumns={columns}; "
            "give at least 2 by 2"
        )
    tell_ignored("HeightFieldParams", params.ignored())
    spacing = (float(params.column_scale), float(params.row_scale))
    heights = samples.astype(np.float32) * np.float32(params.vertical_scale)
    return Terrain(heights, spacing, params.transform, float(params.dynamic_friction))


def from_triangles(vertices: np.ndarray, triangles: np.ndarray, params: TriangleMeshParams) -> Terrain:
    """Return the terrain of ``gym.add_triangle_mesh``: flat arrays of positions, m, and of vertex indices.

    A mesh from ``terrain_utils.convert_heightfield_to_trimesh`` is converted back to its height field. Of other meshes
    the upper surface is taken, on a grid of ``SPACING``; overhangs are lost.

    Raises:
        ValueError: the arrays do not fit ``nb_vertices`` and ``nb_triangles``, or indices are out of range.
    """
    points = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
    faces = np.asarray(triangles).astype(np.int64).reshape(-1, 3)
    for name, wanted, count in (
        ("nb_vertices", int(params.nb_vertices), len(points)),
        ("nb_triangles", int(params.nb_triangles), len(faces)),
    ):
        if wanted != count:
            raise ValueError(f"add_triangle_mesh: {name} is {wanted}, but the array holds {count}")
    if not len(faces) or faces.min() < 0 or faces.max() >= len(points):
        raise ValueError(f"add_triangle_mesh: give at least one triangle, with indices from 0 to {len(points) - 1}")
    tell_ignored("TriangleMeshParams", params.ignored())
    grid = _grid(points, faces)
    heights, spacing, corner = grid if grid is not None else rasterize(points, faces)
    pose = params.transform * pose_object(np.r_[corner, 0.0, 1.0, 0.0, 0.0, 0.0])
    return Terrain(heights, spacing, pose, float(params.dynamic_friction))


Grid = tuple  # heights, spacing, corner


def _grid(points: np.ndarray, faces: np.ndarray) -> Grid | None:
    """Return the height field of these triangles, or None if they are not one.

    Vertices are the nodes row by row; the triangles are two for each cell, with either diagonal. Nodes may have been
    moved by one cell, to make walls vertical: only the heights count.
    """
    reach = faces.max(axis=1) - faces.min(axis=1)
    for columns in (int(reach.max()) - 1, int(reach.max())):  # one number for each direction of the diagonals
        rows = len(points) // max(columns, 1)
        if min(rows, columns) < 2 or len(points) != rows * columns:
            continue
        if len(faces) != 2 * (rows - 1) * (columns - 1) or not ((reach == columns + 1) | (reach == columns)).all():
            continue
        nodes = points.reshape(rows, columns, 3)
        dx, dy = _pitch(nodes[..., 0]), _pitch(nodes[..., 1].T)
        if not (dx > 0 and dy > 0):
            continue
        off = nodes[..., 0] - dx * np.arange(rows)[:, None], nodes[..., 1] - dy * np.arange(columns)
        corner = [float(np.median(values)) for values in off]
        if all(np.abs(values - c).max() <= 1.01 * d for values, c, d in zip(off, corner, (dx, dy))):
            return nodes[..., 2].astype(np.float32), (float(dx), float(dy)), np.array(corner)
    return None


def _pitch(x: np.ndarray) -> float:
    """Return the distance between rows of coordinates, of which some may have been moved.

    Rows far apart are compared: differences of neighbours are multiples of the coordinates' rounding, whose sum over a
    large terrain is more than a cell.
    """
    rows = np.median(x, axis=1)
    far = len(rows) // 2
    return float(np.median(rows[far:] - rows[:-far])) / far


def rasterize(points: np.ndarray, faces: np.ndarray) -> Grid:
    """Return the upper surface of a mesh on a grid; nodes that no triangle covers get the mesh's lowest height.

    Raises:
        ValueError: the grid would have more than ``MAX_NODES`` nodes.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    nx, ny = (max(2, int(np.ceil((high[k] - low[k]) / SPACING - 1e-6)) + 1) for k in (0, 1))
    if nx * ny > MAX_NODES:
        raise ValueError(f"add_triangle_mesh: a mesh of {nx * SPACING:.0f} m by {ny * SPACING:.0f} m is too large")
    heights = np.full((nx, ny), -np.inf)
    corners = ((points - [low[0], low[1], 0.0]) / [SPACING, SPACING, 1.0])[faces]
    first = np.maximum(np.ceil(corners[..., :2].min(axis=1) - 1e-6), 0).astype(np.int64)
    count = np.floor(corners[..., :2].max(axis=1) + 1e-6).astype(np.int64) + 1 - first
    a, b, c = (corners[:, k] for k in range(3))
    area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    flat = (count > 0).all(axis=1) & (np.abs(area) > 1e-12)  # other triangles contain no node, or are vertical
    small = flat & (count <= 8).all(axis=1)
    for i, j in np.ndindex(8, 8):  # all small triangles at once
        some = np.flatnonzero(small & (count > [i, j]).all(axis=1))
        _raise(heights, first[some] + [i, j], a[some], b[some], c[some], area[some])
    for k in np.flatnonzero(flat & ~small):  # large ones one by one
        nodes = first[k] + np.indices(count[k]).reshape(2, -1).T
        _raise(heights, nodes, *(values[k : k + 1] for values in (a, b, c, area)))
    heights[~np.isfinite(heights)] = low[2]
    return heights.astype(np.float32), (SPACING, SPACING), low[:2]


def _raise(
    heights: np.ndarray, nodes: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, area: np.ndarray
) -> None:
    """Raise nodes ``(n, 2)`` to the heights of triangles ``(n or 1, 3)`` that contain them."""
    x, y = nodes[:, 0] - a[:, 0], nodes[:, 1] - a[:, 1]
    u = (x * (c[:, 1] - a[:, 1]) - y * (c[:, 0] - a[:, 0])) / area
    v = (y * (b[:, 0] - a[:, 0]) - x * (b[:, 1] - a[:, 1])) / area
    inside = (u >= -1e-6) & (v >= -1e-6) & (u + v <= 1 + 1e-6) & (nodes < heights.shape).all(axis=1)
    z = a[:, 2] + u * (b[:, 2] - a[:, 2]) + v * (c[:, 2] - a[:, 2])
    np.maximum.at(heights, (nodes[inside, 0], nodes[inside, 1]), z[inside])
