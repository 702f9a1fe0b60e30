# type: ignore  # Warp compiles these functions; they are Python in their syntax alone
"""Up to four contacts of a sphere or a capsule with a height field's surface, in the field's frame.

The threads of a block search for them together: each examines every n-th triangle or edge, and all get the result.
"""

import warp as wp

from mujoco_batches.physics.contacts.surface import (
    FAR,
    Surface,
    cell_of,
    cell_range,
    cells_in,
    depth_in_column,
    lies_below,
    nearest_on_segments,
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
    nearest_touch = Touch()
    nearest_touch.dist = FAR
    row, column = corner[0], corner[1]
    # the triangle's corners and its normal
    a, d = node(s, row, column), node(s, row + 1, column + 1)
    b = node(s, row, column + 1)  # along x first: counter-clockwise from above
    c = d
    if half == 1:
        b = d
        c = node(s, row + 1, column)
    normal = wp.normalize(wp.cross(b - a, c - a))
    if inside:
        # a point in the ground touches the face above it
        across = (p[0] - a[0]) * s.cell[1] - (p[1] - a[1]) * s.cell[0]
        if (across >= 0.0) == (half == 0):
            nearest_touch.dist = wp.dot(p - a, normal) - radius
            nearest_touch.normal = normal
            nearest_touch.face = 1
    elif wp.max(a[2], wp.max(b[2], c[2])) > p[2] - around:
        # above it: the nearest point, which may be of an edge that the neighbour shares
        nearest, within = nearest_on_triangle(p, a, b, c)
        offset = p - nearest
        dist = wp.length(offset)
        if dist < around and (within or dist > 1.0e-6):
            if within:
                nearest_touch.dist = wp.abs(wp.dot(p - a, normal)) - radius
                nearest_touch.normal = normal
                nearest_touch.face = 1
            else:
                nearest_touch.dist = dist - radius
                nearest_touch.normal = offset / dist
    return nearest_touch


@wp.func
def is_new(contacts: Contacts, new: Touch) -> bool:
    """Return whether no deeper contact stands for this one: a similar face, or one beside an edge."""
    for k in range(contacts.count):
        limit = wp.where(new.face + contacts.faces[k] == 2, SAME_FACE, SAME_EDGE)
        if wp.dot(contacts.normal[k], new.normal) > limit:
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
    contacts = Contacts()
    below = depth_in_column(s, p)
    around = radius + reach
    columns = cell_range(p[0] - around, p[0] + around, s.corner[0], s.cell[0], s.columns)
    rows = cell_range(p[1] - around, p[1] + around, s.corner[1], s.cell[1], s.rows)
    if below < 0.0 and lies_below(s, rows, columns, p[2] - around):
        return contacts
    inside = below >= 0.0
    if inside:  # out through the face above the centre
        columns = cell_range(p[0], p[0], s.corner[0], s.cell[0], s.columns)
        rows = cell_range(p[1], p[1], s.corner[1], s.cell[1], s.rows)
    # the deepest triangle that is not like one before, again and again
    triangles = 2 * cells_in(rows, columns)
    for _ in range(most):
        best = float(FAR)
        best_number = int(NONE)
        for number in range(lane, triangles, wp.block_dim()):
            here = touch(s, p, radius, around, inside, cell_of(rows, columns, number / 2), number % 2)
            if here.dist < best and is_new(contacts, here):
                best = here.dist
                best_number = number
        number = first_of_least(best, best_number)
        if number == NONE:
            break
        here = touch(s, p, radius, around, inside, cell_of(rows, columns, number / 2), number % 2)
        contacts.dist[contacts.count] = here.dist
        contacts.normal[contacts.count] = here.normal
        contacts.faces[contacts.count] = here.face
        contacts.count += 1
    return contacts


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
def with_contact(contacts: ShapeContacts, dist: float, normal: wp.vec3, point: wp.vec3) -> ShapeContacts:
    """Return the contacts with one more."""
    contacts.dist[contacts.count] = dist
    contacts.normal[contacts.count] = normal
    contacts.point[contacts.count] = point
    contacts.count += 1
    return contacts


@wp.func
def contacts_of_sphere(s: Surface, center: wp.vec3, radius: float, reach: float, lane: int) -> ShapeContacts:
    """Return the contacts with distances less than ``reach``."""
    contacts = ShapeContacts()
    near = sphere_contacts(s, center, radius, reach, MOST, lane)
    for k in range(near.count):
        contacts = with_contact(contacts, near.dist[k], near.normal[k], center)
    return contacts


@wp.func
def crossing(
    s: Surface, start: wp.vec3, along: wp.vec3, radius: float, around: float, corner: wp.vec2i, edge: int
) -> Crossing:
    """Examine one edge of a cell, whose lowest row and column are ``corner``: along x, along y, or the diagonal."""
    edge_crossing = Crossing()
    edge_crossing.dist = FAR
    row, column = corner[0], corner[1]
    # above a valley or a plane, the ends are nearer to the ground than the middle
    if (s.ridges[s.first + row * s.columns + column] & (1 << edge)) == 0:
        return edge_crossing
    a = node(s, row, column)
    b = node(s, row + wp.where(edge > 0, 1, 0), column + wp.where(edge != 1, 1, 0))
    if wp.max(a[2], b[2]) <= wp.min(start[2], start[2] + along[2]) - around:
        return edge_crossing
    at = nearest_on_segments(start, along, a, b - a)
    p = start + at[0] * along
    offset = p - (a + at[1] * (b - a))
    length = wp.length(offset)
    if at[0] > 0.001 and at[0] < 0.999 and length < around and length > 1.0e-6:
        sign = wp.where(depth_in_column(s, p) > 0.0, -1.0, 1.0)
        edge_crossing.dist = sign * length - radius
        edge_crossing.normal = sign * offset / length
        edge_crossing.at = at[0]
    return edge_crossing


@wp.func
def contacts_of_capsule(
    s: Surface, center: wp.vec3, axis: wp.vec3, radius: float, reach: float, lane: int
) -> ShapeContacts:
    """Return the contacts with distances less than ``reach``; ``axis`` points from the centre to one end.

    They are those of the two ends as spheres, and in each half that of the edge on which the middle lies, if it is
    deeper than the ends.
    """
    contacts = ShapeContacts()
    around = radius + reach
    start, along = center - axis, 2.0 * axis
    wide, deep = wp.abs(axis[0]) + around, wp.abs(axis[1]) + around
    columns = cell_range(center[0] - wide, center[0] + wide, s.corner[0], s.cell[0], s.columns)
    rows = cell_range(center[1] - deep, center[1] + deep, s.corner[1], s.cell[1], s.rows)
    if lies_below(s, rows, columns, center[2] - wp.abs(axis[2]) - around):
        return contacts

    # the two ends, as spheres
    ends = wp.vec2(FAR, FAR)
    for end in range(2):
        p = center + (2.0 * float(end) - 1.0) * axis
        at_end = sphere_contacts(s, p, radius, reach + radius, 1, lane)
        if at_end.count > 0:
            ends[end] = at_end.dist[0]
            if ends[end] < reach:
                contacts = with_contact(contacts, ends[end], at_end.normal[0], p)

    # find, in each half of the axis, the deepest edge that it passes and that is deeper than the line between the ends
    edges = 3 * cells_in(rows, columns)
    first = float(FAR)
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
            contacts = with_contact(contacts, here.dist, here.normal, start + here.at * along)
    return contacts
