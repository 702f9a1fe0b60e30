"""Uneven ground: a height field or a triangle mesh as one grid of heights, which MuJoCo calls an hfield."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from envcoder_bench.isaacgym.params import HeightFieldParams, TriangleMeshParams, tell_ignored
from envcoder_bench.isaacgym.transforms import Transform, pose_object

MAX_NODES = 25_000_000  # of a rasterized mesh: 100 MB
SPACING = 0.05  # m, of the grid that a mesh without one is read on


@dataclass
class Terrain:
    """Ground that all environments share.

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
        ValueError: the samples are not as many as ``nbRows`` times ``nbColumns``.
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
    """Return the terrain of ``gym.add_triangle_mesh``: flat arrays of positions, m, and of vertices' numbers.

    A mesh of a height field (``terrain_utils.convert_heightfield_to_trimesh``) gives back its field. Of any other mesh
    the upper surface is taken, on a grid of ``SPACING``; what lies below or overhangs is lost.

    Raises:
        ValueError: the arrays do not fit ``nb_vertices`` and ``nb_triangles``, or number vertices that are not there.
    """
    points = np.asarray(vertices, dtype=np.float64).reshape(-1, 3)
    faces = np.asarray(triangles).astype(np.int64).reshape(-1, 3)
    for name, wanted, given in (
        ("nb_vertices", int(params.nb_vertices), len(points)),
        ("nb_triangles", int(params.nb_triangles), len(faces)),
    ):
        if wanted != given:
            raise ValueError(f"add_triangle_mesh: {name} is {wanted}, but the array holds {given}")
    if not len(faces) or faces.min() < 0 or faces.max() >= len(points):
        raise ValueError(f"add_triangle_mesh: triangles number vertices from 0 to {len(points) - 1}, and one at least")
    tell_ignored("TriangleMeshParams", params.ignored())
    grid = _grid(points, faces)
    heights, spacing, corner = grid if grid is not None else rasterize(points, faces)
    pose = params.transform * pose_object(np.r_[corner, 0.0, 1.0, 0.0, 0.0, 0.0])
    return Terrain(heights, spacing, pose, float(params.dynamic_friction))


Grid = tuple  # heights, spacing, corner


def _grid(points: np.ndarray, faces: np.ndarray) -> Grid | None:
    """Return the height field whose triangles these are, or None.

    Vertices are the nodes row by row; the triangles are two for each cell. Nodes may have been moved by one cell, to
    make walls vertical: only the heights count.
    """
    columns = int(faces[0].max() - faces[0].min()) - 1
    if columns < 2 or len(points) % columns:
        return None
    rows = len(points) // columns
    if rows < 2 or len(faces) != 2 * (rows - 1) * (columns - 1):
        return None
    step = faces.max(axis=1) - faces.min(axis=1)
    if not ((step == columns + 1) | (step == columns)).all():
        return None
    nodes = points.reshape(rows, columns, 3)
    dx, dy = np.median(np.diff(nodes[..., 0], axis=0)), np.median(np.diff(nodes[..., 1], axis=1))
    if not (dx > 0 and dy > 0):
        return None
    off = nodes[..., 0] - dx * np.arange(rows)[:, None], nodes[..., 1] - dy * np.arange(columns)
    corner = [float(np.median(values)) for values in off]
    moved = [np.abs(values - c).max() / d for values, c, d in zip(off, corner, (dx, dy))]
    if max(moved) > 1.01:
        return None
    return nodes[..., 2].astype(np.float32), (float(dx), float(dy)), np.array(corner)


def rasterize(points: np.ndarray, faces: np.ndarray, spacing: float = SPACING) -> Grid:
    """Return the upper surface of a mesh on a grid; nodes that no triangle covers get the mesh's lowest height.

    Raises:
        ValueError: the grid would have more than ``MAX_NODES`` nodes.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    nx, ny = (max(2, int(np.ceil((high[k] - low[k]) / spacing - 1e-6)) + 1) for k in (0, 1))
    if nx * ny > MAX_NODES:
        raise ValueError(f"add_triangle_mesh: a mesh of {nx * spacing:.0f} m by {ny * spacing:.0f} m is too large")
    heights = np.full((nx, ny), -np.inf)
    local = (points - [low[0], low[1], 0.0]) / [spacing, spacing, 1.0]
    for a, b, c in local[faces]:
        x0, y0 = (max(0, int(np.ceil(min(a[k], b[k], c[k]) - 1e-6))) for k in (0, 1))
        x1, y1 = (int(np.floor(max(a[k], b[k], c[k]) + 1e-6)) + 1 for k in (0, 1))
        area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
        if x0 >= x1 or y0 >= y1 or abs(area) < 1e-12:
            continue  # between the nodes, or a vertical wall
        x, y = np.arange(x0, min(x1, nx))[:, None] - a[0], np.arange(y0, min(y1, ny)) - a[1]
        u = (x * (c[1] - a[1]) - y * (c[0] - a[0])) / area
        v = (y * (b[0] - a[0]) - x * (b[1] - a[1])) / area
        inside = (u >= -1e-6) & (v >= -1e-6) & (u + v <= 1 + 1e-6)
        z = np.where(inside, a[2] + u * (b[2] - a[2]) + v * (c[2] - a[2]), -np.inf)
        part = heights[x0 : x0 + len(x), y0 : y0 + z.shape[1]]
        np.maximum(part, z, out=part)
    heights[~np.isfinite(heights)] = low[2]
    return heights.astype(np.float32), (spacing, spacing), low[:2]
