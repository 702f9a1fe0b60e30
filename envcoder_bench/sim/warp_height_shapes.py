"""Up to four contacts of a sphere or a capsule with a height field's surface, in the field's frame.

As in ``warp_height_spheres``, the threads of a block search together.
"""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportInvalidTypeForm=false

import warp as wp

from envcoder_bench.sim.warp_height_spheres import MOST, NONE, first_of_least, sphere_contacts
from envcoder_bench.sim.warp_height_surface import (
    FAR,
    Surface,
    cell_of,
    cell_range,
    cells_in,
    depth_in_column,
    lies_below,
    nearest_on_segments,
    node,
)


@wp.struct
class ShapeContacts:
    """Up to four contacts: distance, normal out of the ground, and point of the shape's axis."""

    count: int
    dist: wp.vec4
    normal: wp.types.matrix(shape=(4, 3), dtype=float)
    point: wp.types.matrix(shape=(4, 3), dtype=float)


@wp.struct
class Crossing:
    """Where an axis passes an edge: distance, FAR if out of reach, normal, and the axis' point, from 0 to 1."""

    dist: float
    normal: wp.vec3
    at: float


@wp.func
def with_contact(found: ShapeContacts, dist: float, normal: wp.vec3, point: wp.vec3) -> ShapeContacts:
    """Return the contacts with one more."""
    found.dist[found.count] = dist
    found.normal[found.count] = normal
    found.point[found.count] = point
    found.count += 1
    return found


@wp.func
def contacts_of_sphere(s: Surface, center: wp.vec3, radius: float, reach: float, lane: int) -> ShapeContacts:
    """Return the contacts with distances less than ``reach``."""
    found = ShapeContacts()
    near = sphere_contacts(s, center, radius, reach, MOST, lane)
    for k in range(near.count):
        found = with_contact(found, near.dist[k], near.normal[k], center)
    return found


@wp.func
def crossing(
    s: Surface, start: wp.vec3, along: wp.vec3, radius: float, around: float, corner: wp.vec2i, edge: int
) -> Crossing:
    """Examine one edge of a cell, whose lowest row and column are ``corner``: along x, along y, or the diagonal."""
    found = Crossing()
    found.dist = FAR
    row, column = corner[0], corner[1]
    # in a valley or a plane the ends are nearer to the ground than the middle
    if (s.ridges[s.first + row * s.columns + column] & (1 << edge)) == 0:
        return found
    a = node(s, row, column)
    b = node(s, row + wp.where(edge > 0, 1, 0), column + wp.where(edge != 1, 1, 0))
    if wp.max(a[2], b[2]) <= wp.min(start[2], start[2] + along[2]) - around:
        return found
    at = nearest_on_segments(start, along, a, b - a)
    p = start + at[0] * along
    offset = p - (a + at[1] * (b - a))
    length = wp.length(offset)
    if at[0] > 0.001 and at[0] < 0.999 and length < around and length > 1.0e-6:
        sign = wp.where(depth_in_column(s, p) > 0.0, -1.0, 1.0)
        found.dist = sign * length - radius
        found.normal = sign * offset / length
        found.at = at[0]
    return found


@wp.func
def contacts_of_capsule(
    s: Surface, center: wp.vec3, axis: wp.vec3, radius: float, reach: float, lane: int
) -> ShapeContacts:
    """Return the contacts with distances less than ``reach``; ``axis`` points from the centre to one end.

    They are those of the two ends as spheres, and in each half that of the edge on which the middle lies, if it is
    deeper than the ends.
    """
    found = ShapeContacts()
    around = radius + reach
    start, along = center - axis, 2.0 * axis
    wide, deep = wp.abs(axis[0]) + around, wp.abs(axis[1]) + around
    columns = cell_range(center[0] - wide, center[0] + wide, s.corner[0], s.cell[0], s.columns)
    rows = cell_range(center[1] - deep, center[1] + deep, s.corner[1], s.cell[1], s.rows)
    if lies_below(s, rows, columns, center[2] - wp.abs(axis[2]) - around):
        return found

    ends = wp.vec2(FAR, FAR)
    for end in range(2):
        p = center + (2.0 * float(end) - 1.0) * axis
        at_end = sphere_contacts(s, p, radius, reach + radius, 1, lane)
        if at_end.count > 0:
            ends[end] = at_end.dist[0]
            if ends[end] < reach:
                found = with_contact(found, ends[end], at_end.normal[0], p)

    edges = 3 * cells_in(rows, columns)
    first = float(FAR)  # of each half of the axis
    second = float(FAR)
    first_edge = int(NONE)
    second_edge = int(NONE)
    for number in range(lane, edges, wp.block_dim()):
        here = crossing(s, start, along, radius, around, cell_of(rows, columns, number / 3), number % 3)
        straight = ends[0] + here.at * (ends[1] - ends[0])
        if here.dist < reach and here.dist < straight - 1.0e-4:
            if here.at < 0.5 and here.dist < first:
                first = here.dist
                first_edge = number
            if here.at >= 0.5 and here.dist < second:
                second = here.dist
                second_edge = number
    for half in range(2):
        number = first_of_least(wp.where(half == 0, first, second), wp.where(half == 0, first_edge, second_edge))
        if number != NONE:
            here = crossing(s, start, along, radius, around, cell_of(rows, columns, number / 3), number % 3)
            found = with_contact(found, here.dist, here.normal, start + here.at * along)
    return found
