"""Up to four contacts of a sphere or a capsule with a height field's surface, in the field's frame."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportInvalidTypeForm=false
# ruff: noqa: RUF046, UP018 - int(0) declares a variable of a kernel, which a literal would make a constant

import warp as wp

from envcoder_bench.sim.warp_height_spheres import Contacts, sphere_contacts
from envcoder_bench.sim.warp_height_surface import (
    FAR,
    Surface,
    cell_range,
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


@wp.func
def with_contact(found: ShapeContacts, dist: float, normal: wp.vec3, point: wp.vec3) -> ShapeContacts:
    """Return the contacts with one more."""
    found.dist[found.count] = dist
    found.normal[found.count] = normal
    found.point[found.count] = point
    found.count += 1
    return found


@wp.func
def contacts_of_sphere(s: Surface, center: wp.vec3, radius: float, reach: float) -> ShapeContacts:
    """Return the contacts with distances less than ``reach``."""
    found = ShapeContacts()
    near = sphere_contacts(s, center, radius, reach)
    for k in range(near.count):
        found = with_contact(found, near.dist[k], near.normal[k], center)
    return found


@wp.func
def deepest(found: Contacts) -> int:
    """Return the number of the deepest contact."""
    best = int(0)
    for k in range(1, found.count):
        if found.dist[k] < found.dist[best]:
            best = k
    return best


@wp.func
def contacts_of_capsule(s: Surface, center: wp.vec3, axis: wp.vec3, radius: float, reach: float) -> ShapeContacts:
    """Return the contacts with distances less than ``reach``; ``axis`` points from the centre to one end.

    They are those of the two ends as spheres, and in each half that of the edge on which the middle lies, if it is
    deeper than the ends.
    """
    found = ShapeContacts()
    ends = wp.vec2(FAR, FAR)
    for end in range(2):
        p = center + (2.0 * float(end) - 1.0) * axis
        at_end = sphere_contacts(s, p, radius, reach + radius)
        if at_end.count > 0:
            best = deepest(at_end)
            ends[end] = at_end.dist[best]
            if ends[end] < reach:
                found = with_contact(found, ends[end], at_end.normal[best], p)
    middle = wp.vec2(FAR, FAR)
    middle_normal = wp.matrix(shape=(2, 3), dtype=float)
    middle_point = wp.matrix(shape=(2, 3), dtype=float)
    around = radius + reach
    start, along = center - axis, 2.0 * axis
    wide, deep = wp.abs(axis[0]) + around, wp.abs(axis[1]) + around
    columns = cell_range(center[0] - wide, center[0] + wide, s.corner[0], s.cell[0], s.columns)
    rows = cell_range(center[1] - deep, center[1] + deep, s.corner[1], s.cell[1], s.rows)
    lowest = center[2] - wp.abs(axis[2]) - around
    if lies_below(s, rows, columns, lowest):
        return found
    for row in range(rows[0], rows[1] + 1):
        for column in range(columns[0], columns[1] + 1):
            # in a valley or a plane the ends are nearer to the ground than the middle
            ridges = s.ridges[s.first + row * s.columns + column]
            a = node(s, row, column)
            for edge in range(3):
                b = node(s, row + wp.where(edge > 0, 1, 0), column + wp.where(edge != 1, 1, 0))
                if (ridges & (1 << edge)) != 0 and wp.max(a[2], b[2]) > lowest:
                    at = nearest_on_segments(start, along, a, b - a)
                    p = start + at[0] * along
                    offset = p - (a + at[1] * (b - a))
                    length = wp.length(offset)
                    if at[0] > 0.001 and at[0] < 0.999 and length < around and length > 1.0e-6:
                        sign = wp.where(depth_in_column(s, p) > 0.0, -1.0, 1.0)
                        here = sign * length - radius
                        half = wp.where(at[0] < 0.5, 0, 1)
                        straight = ends[0] + at[0] * (ends[1] - ends[0])
                        if here < middle[half] and here < straight - 1.0e-4:
                            middle[half] = here
                            middle_normal[half] = sign * offset / length
                            middle_point[half] = p
    for half in range(2):
        if middle[half] < reach:
            found = with_contact(found, middle[half], middle_normal[half], middle_point[half])
    return found
