"""The contacts of a sphere with a height field's surface, in the field's frame.

The threads of a block search for them together: each examines every n-th triangle, and all of them get the result.
"""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportInvalidTypeForm=false

import warp as wp

from envcoder_bench.sim.warp_height_surface import (
    FAR,
    Surface,
    cell_of,
    cell_range,
    cells_in,
    depth_in_column,
    lies_below,
    nearest_on_triangle,
    node,
)

SAME_FACE = wp.constant(0.995)  # cosine between normals of faces that count as one
SAME_EDGE = wp.constant(0.8)  # cosine between normals below which an edge beside a deeper contact counts
MOST = wp.constant(4)  # contacts of a sphere
NONE = wp.constant(2147483647)


@wp.struct
class Contacts:
    """Up to four contacts; ``faces`` is 1 where the nearest point lies inside a triangle."""

    count: int
    dist: wp.vec4
    normal: wp.types.matrix(shape=(4, 3), dtype=float)
    faces: wp.vec4i


@wp.struct
class Touch:
    """Where a triangle is nearest: distance, FAR if it is out of reach, normal, and 1 if inside the triangle."""

    dist: float
    normal: wp.vec3
    face: int


@wp.func
def touch(s: Surface, p: wp.vec3, radius: float, around: float, inside: bool, corner: wp.vec2i, half: int) -> Touch:
    """Examine one triangle of a cell, whose lowest row and column are ``corner``.

    Args:
        around: the distance of ``p`` within which it counts.
        inside: whether ``p`` lies in the ground; then the face above it counts alone.
        half: 0 for the triangle along x, 1 for the other.
    """
    found = Touch()
    found.dist = FAR
    row, column = corner[0], corner[1]
    a, d = node(s, row, column), node(s, row + 1, column + 1)
    b = node(s, row, column + 1)  # along x first: counter-clockwise from above
    c = d
    if half == 1:
        b = d
        c = node(s, row + 1, column)
    normal = wp.normalize(wp.cross(b - a, c - a))
    if inside:
        across = (p[0] - a[0]) * s.cell[1] - (p[1] - a[1]) * s.cell[0]
        if (across >= 0.0) == (half == 0):
            found.dist = wp.dot(p - a, normal) - radius
            found.normal = normal
            found.face = 1
    elif wp.max(a[2], wp.max(b[2], c[2])) > p[2] - around:
        nearest, within = nearest_on_triangle(p, a, b, c)
        offset = p - nearest
        dist = wp.length(offset)
        if dist < around and (within or dist > 1.0e-6):
            if within:
                found.dist = wp.abs(wp.dot(p - a, normal)) - radius
                found.normal = normal
                found.face = 1
            else:
                found.dist = dist - radius
                found.normal = offset / dist
    return found


@wp.func
def is_new(found: Contacts, new: Touch) -> bool:
    """Return whether no deeper contact stands for this one: a similar face, or one beside an edge."""
    for k in range(found.count):
        limit = wp.where(new.face + found.faces[k] == 2, SAME_FACE, SAME_EDGE)
        if wp.dot(found.normal[k], new.normal) > limit:
            return False
    return True


@wp.func
def first_of_least(value: float, number: int) -> int:
    """Return the number that belongs to the least value of all threads, the smallest of equal ones; NONE above FAR."""
    least = wp.tile_min(wp.tile(value))[0]
    mine = wp.where(value <= least and value < FAR, number, NONE)
    return wp.tile_min(wp.tile(mine))[0]


@wp.func
def sphere_contacts(s: Surface, p: wp.vec3, radius: float, reach: float, most: int, lane: int) -> Contacts:
    """Return the deepest contacts with distances less than ``reach``, the deepest first.

    The normals point out of the ground. A face or an edge beside a deeper contact of about the same normal is none.

    Args:
        most: contacts to look for, up to four.
        lane: of this thread in its block.
    """
    found = Contacts()
    below = depth_in_column(s, p)
    around = radius + reach
    columns = cell_range(p[0] - around, p[0] + around, s.corner[0], s.cell[0], s.columns)
    rows = cell_range(p[1] - around, p[1] + around, s.corner[1], s.cell[1], s.rows)
    if below < 0.0 and lies_below(s, rows, columns, p[2] - around):
        return found
    inside = below >= 0.0
    if inside:  # out through the face above the centre
        columns = cell_range(p[0], p[0], s.corner[0], s.cell[0], s.columns)
        rows = cell_range(p[1], p[1], s.corner[1], s.cell[1], s.rows)
    triangles = 2 * cells_in(rows, columns)
    for _ in range(most):
        best = float(FAR)
        best_number = int(NONE)
        for number in range(lane, triangles, wp.block_dim()):
            here = touch(s, p, radius, around, inside, cell_of(rows, columns, number / 2), number % 2)
            if here.dist < best and is_new(found, here):
                best = here.dist
                best_number = number
        number = first_of_least(best, best_number)
        if number == NONE:
            break
        here = touch(s, p, radius, around, inside, cell_of(rows, columns, number / 2), number % 2)
        found.dist[found.count] = here.dist
        found.normal[found.count] = here.normal
        found.faces[found.count] = here.face
        found.count += 1
    return found
