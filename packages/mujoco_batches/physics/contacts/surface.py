"""A height field's surface in Warp's kernels: nodes, cells, and nearest points of triangles and segments.

``add_relief`` computes on the host what lets the search for contacts skip cells: the highest node ahead, and ridges.
"""

# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# ruff: noqa: UP018 - float(0.5) declares a variable of a function, which a literal would make a constant

import mujoco_warp as mjw
import numpy as np
import warp as wp

FAR = wp.constant(1.0e6)  # m, the distance of what has not been found
SPAN = 8  # cells along each axis whose highest node is known in advance
FLAT = 1.0e-5  # change of slope below which two cells count as one plane: MuJoCo keeps heights as float32, 0 to 1
RIDGES_X, RIDGES_Y, RIDGES_DIAGONAL = 1, 2, 4


@wp.struct
class Surface:
    """An hfield's surface in the geom's frame: nodes are ``cell`` apart, from ``corner`` on."""

    heights: wp.array[float]
    ceiling: wp.array[float]
    ridges: wp.array[int]
    first: int
    rows: int
    columns: int
    corner: wp.vec2
    cell: wp.vec2
    scale: float


@wp.func
def node(s: Surface, row: int, column: int) -> wp.vec3:
    """Return a node's position."""
    return wp.vec3(
        s.corner[0] + float(column) * s.cell[0],
        s.corner[1] + float(row) * s.cell[1],
        s.heights[s.first + row * s.columns + column] * s.scale,
    )


@wp.func
def cell_range(low: float, high: float, corner: float, cell: float, nodes: int) -> wp.vec2i:
    """Return the first and the last cell that an interval meets; it is empty if the last is smaller."""
    first = wp.max(0, int(wp.floor((low - corner) / cell)))
    return wp.vec2i(first, wp.min(nodes - 2, int(wp.floor((high - corner) / cell))))


@wp.func
def cells_in(rows: wp.vec2i, columns: wp.vec2i) -> int:
    """Return the number of cells of two ranges."""
    return wp.max(0, rows[1] - rows[0] + 1) * wp.max(0, columns[1] - columns[0] + 1)


@wp.func
def cell_of(rows: wp.vec2i, columns: wp.vec2i, number: int) -> wp.vec2i:
    """Return the lowest row and column of a cell, by its number in two ranges."""
    wide = columns[1] - columns[0] + 1
    return wp.vec2i(rows[0] + number / wide, columns[0] + number % wide)


@wp.func
def lies_below(s: Surface, rows: wp.vec2i, columns: wp.vec2i, height: float) -> bool:
    """Return whether all nodes of these cells are lower than a height, so that most shapes need not examine cells."""
    for row in range(rows[0], rows[1] + 1, SPAN):
        for column in range(columns[0], columns[1] + 1, SPAN):
            if s.ceiling[s.first + row * s.columns + column] * s.scale > height:
                return False
    return True


@wp.func
def depth_in_column(s: Surface, p: wp.vec3) -> float:
    """Return how far a point lies below the surface, along z; negative above it and beyond the field."""
    u = (p[0] - s.corner[0]) / s.cell[0]
    v = (p[1] - s.corner[1]) / s.cell[1]
    column, row = int(wp.floor(u)), int(wp.floor(v))
    if column < 0 or row < 0 or column > s.columns - 2 or row > s.rows - 2:
        return -FAR
    u -= float(column)
    v -= float(row)
    low, high = node(s, row, column)[2], node(s, row + 1, column + 1)[2]
    if u >= v:
        side = node(s, row, column + 1)[2]
        return low + u * (side - low) + v * (high - side) - p[2]
    side = node(s, row + 1, column)[2]
    return low + v * (side - low) + u * (high - side) - p[2]


@wp.func
def nearest_on_triangle(p: wp.vec3, a: wp.vec3, b: wp.vec3, c: wp.vec3):
    """Return the nearest point of a triangle and whether it lies inside, by regions of vertices, edges and face."""
    # beyond vertex a
    ab, ac = b - a, c - a
    ap = p - a
    d1, d2 = wp.dot(ab, ap), wp.dot(ac, ap)
    if d1 <= 0.0 and d2 <= 0.0:
        return a, False
    # beyond vertex b
    bp = p - b
    d3, d4 = wp.dot(ab, bp), wp.dot(ac, bp)
    if d3 >= 0.0 and d4 <= d3:
        return b, False
    # beyond edge ab, then vertex c and the other edges
    vc = d1 * d4 - d3 * d2
    if vc <= 0.0 and d1 >= 0.0 and d3 <= 0.0:
        return a + ab * (d1 / (d1 - d3)), False
    cp = p - c
    d5, d6 = wp.dot(ab, cp), wp.dot(ac, cp)
    if d6 >= 0.0 and d5 <= d6:
        return c, False
    vb = d5 * d2 - d1 * d6
    if vb <= 0.0 and d2 >= 0.0 and d6 <= 0.0:
        return a + ac * (d2 / (d2 - d6)), False
    va = d3 * d6 - d5 * d4
    if va <= 0.0 and d4 - d3 >= 0.0 and d5 - d6 >= 0.0:
        return b + (c - b) * ((d4 - d3) / ((d4 - d3) + (d5 - d6))), False
    # above or below the face: barycentric coordinates
    inverse = 1.0 / (va + vb + vc)
    return a + ab * (vb * inverse) + ac * (vc * inverse), True


@wp.func
def nearest_on_segments(p: wp.vec3, d1: wp.vec3, q: wp.vec3, d2: wp.vec3) -> wp.vec2:
    """Return the parameters, 0 to 1, of the nearest points of the segments p + t d1 and q + u d2."""
    r = p - q
    a, e, f = wp.dot(d1, d1), wp.dot(d2, d2), wp.dot(d2, r)
    b, c = wp.dot(d1, d2), wp.dot(d1, r)
    denominator = a * e - b * b
    t = float(0.5)  # parallel: the ends are examined as spheres
    if denominator > 1.0e-9 * a * e:
        t = wp.clamp((b * f - c * e) / denominator, 0.0, 1.0)
    u = (b * t + f) / e
    if u < 0.0:
        u = 0.0
        t = wp.clamp(-c / a, 0.0, 1.0)
    elif u > 1.0:
        u = 1.0
        t = wp.clamp((b - c) / a, 0.0, 1.0)
    return wp.vec2(t, u)


def add_relief(model: mjw.Model) -> None:
    """Add ``hfield_ceiling`` and ``hfield_ridges`` to a model: one number for each node, in the order of the heights.

    The ceiling is the highest node of the next SPAN cells along both axes. Ridges are bits: which of the node's edges,
    along x, along y and to the diagonal neighbour, are higher than the surface beside them.
    """
    heights, starts = model.hfield_data.numpy(), model.hfield_adr.numpy()
    rows, columns = model.hfield_nrow.numpy(), model.hfield_ncol.numpy()
    ceiling, ridges = np.zeros_like(heights), np.zeros(len(heights), dtype=np.int32)
    for first, nrow, ncol in zip(starts, rows, columns):
        nodes = slice(first, first + nrow * ncol)
        z = heights[nodes].reshape(nrow, ncol)
        ceiling[nodes] = _highest(_highest(z).T).T.ravel()
        ridges[nodes] = _ridges(z.astype(np.float64)).ravel()
    model.hfield_ceiling = wp.array(ceiling, dtype=float, device=model.hfield_data.device)
    model.hfield_ridges = wp.array(ridges, dtype=int, device=model.hfield_data.device)


def _highest(z: np.ndarray) -> np.ndarray:
    """Return the greatest of each number and the next SPAN in its column."""
    padded = np.pad(z, ((0, SPAN), (0, 0)), mode="edge")
    return np.lib.stride_tricks.sliding_window_view(padded, SPAN + 1, axis=0).max(axis=-1)


def _ridges(z: np.ndarray) -> np.ndarray:
    """Return the bits of ``add_relief`` for heights ``(rows, columns)``; edges at the border count as ridges."""
    bits = np.full(z.shape, RIDGES_X | RIDGES_Y | RIDGES_DIAGONAL, dtype=np.int32)
    # the slope along y above an edge along x, and below it; likewise with x and y exchanged
    x_bend = (z[2:, 1:] - z[1:-1, 1:]) - (z[1:-1, :-1] - z[:-2, :-1])
    y_bend = (z[1:, 2:] - z[1:, 1:-1]) - (z[:-1, 1:-1] - z[:-1, :-2])
    diagonal_bend = z[1:, :-1] + z[:-1, 1:] - z[:-1, :-1] - z[1:, 1:]
    bits[1:-1, :-1] &= ~np.where(x_bend < -FLAT, 0, RIDGES_X)
    bits[:-1, 1:-1] &= ~np.where(y_bend < -FLAT, 0, RIDGES_Y)
    bits[:-1, :-1] &= ~np.where(diagonal_bend < -FLAT, 0, RIDGES_DIAGONAL)
    return bits
