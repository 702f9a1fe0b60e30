"""The contacts of a sphere with a height field's surface, in the field's frame."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
# pyright: reportInvalidTypeForm=false
# ruff: noqa: RUF046, UP018 - int(0) declares a variable of a kernel, which a literal would make a constant

import warp as wp

from envcoder_bench.sim.warp_height_surface import (
    FAR,
    Surface,
    cell_range,
    depth_in_column,
    lies_below,
    nearest_on_triangle,
    node,
)

SAME_FACE = wp.constant(0.995)  # cosine between normals of faces that count as one
SAME_EDGE = wp.constant(0.8)  # cosine between normals below which an edge beside a deeper contact counts


@wp.struct
class Contacts:
    """Up to four contacts; ``faces`` is 1 where the nearest point lies inside a triangle."""

    count: int
    dist: wp.vec4
    normal: wp.types.matrix(shape=(4, 3), dtype=float)
    faces: wp.vec4i


@wp.func
def kept(found: Contacts, dist: float, normal: wp.vec3, face: int) -> Contacts:
    """Return the contacts with one more: of two equal ones the deeper stays, of more than four the shallowest goes."""
    same, shallowest = int(-1), int(0)
    for k in range(found.count):
        limit = wp.where(face + found.faces[k] == 2, SAME_FACE, SAME_EDGE)
        if wp.dot(found.normal[k], normal) > limit:
            same = k
        if found.dist[k] > found.dist[shallowest]:
            shallowest = k
    place = same
    if same < 0:
        if found.count < 4:
            place = found.count
            found.count += 1
            found.dist[place] = FAR
        else:
            place = shallowest
    if dist < found.dist[place]:
        found.dist[place] = dist
        found.normal[place] = normal
        found.faces[place] = face
    return found


@wp.func
def pruned(found: Contacts) -> Contacts:
    """Return the contacts without those at edges whose normal is near that of a deeper contact."""
    out = Contacts()
    for k in range(found.count):
        keep = bool(True)
        for other in range(found.count):
            near = wp.dot(found.normal[k], found.normal[other]) > SAME_EDGE
            deeper = found.dist[other] < found.dist[k] or (found.dist[other] == found.dist[k] and other < k)
            if other != k and found.faces[k] == 0 and near and deeper:
                keep = False
        if keep:
            place = out.count
            out.count += 1
            out.dist[place] = found.dist[k]
            out.normal[place] = found.normal[k]
            out.faces[place] = found.faces[k]
    return out


@wp.func
def sphere_contacts(s: Surface, p: wp.vec3, radius: float, reach: float) -> Contacts:
    """Return the contacts of a sphere with distances less than ``reach``; the normal points out of the ground."""
    found = Contacts()
    below = depth_in_column(s, p)
    around = radius + reach
    columns = cell_range(p[0] - around, p[0] + around, s.corner[0], s.cell[0], s.columns)
    rows = cell_range(p[1] - around, p[1] + around, s.corner[1], s.cell[1], s.rows)
    if below < 0.0 and lies_below(s, rows, columns, p[2] - around):
        return found
    if below >= 0.0:  # the centre is in the ground: out through the face above it
        columns = cell_range(p[0], p[0], s.corner[0], s.cell[0], s.columns)
        rows = cell_range(p[1], p[1], s.corner[1], s.cell[1], s.rows)
    for row in range(rows[0], rows[1] + 1):
        for column in range(columns[0], columns[1] + 1):
            a, d = node(s, row, column), node(s, row + 1, column + 1)
            for half in range(2):
                b = node(s, row, column + 1)  # along x first: counter-clockwise from above
                c = d
                if half == 1:
                    b = d
                    c = node(s, row + 1, column)
                normal = wp.normalize(wp.cross(b - a, c - a))
                if below >= 0.0:
                    across = (p[0] - a[0]) * s.cell[1] - (p[1] - a[1]) * s.cell[0]
                    if (across >= 0.0) == (half == 0):
                        found = kept(found, wp.dot(p - a, normal) - radius, normal, 1)
                elif wp.max(a[2], wp.max(b[2], c[2])) > p[2] - around:
                    nearest, inside = nearest_on_triangle(p, a, b, c)
                    offset = p - nearest
                    dist = wp.length(offset)
                    if dist < around and (inside or dist > 1.0e-6):
                        if inside:
                            found = kept(found, wp.abs(wp.dot(p - a, normal)) - radius, normal, 1)
                        else:
                            found = kept(found, dist - radius, offset / dist, 0)
    return pruned(found)
