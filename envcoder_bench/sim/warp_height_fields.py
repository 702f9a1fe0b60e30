"""Contacts of spheres and capsules with height fields, for MuJoCo Warp.

MuJoCo Warp 4.0.0 finds them by GJK and EPA on a prism under each triangle. On relief, 0.5 to 3.5 % of the contacts of a
foot come out wrong, by up to the height of the relief, and throw robots into the air. Here the nearest points of the
surface's triangles are computed directly: a contact has the depth and the normal of the surface, and the edges between
cells of one slope give no contacts of their own. Other shapes stay with MuJoCo Warp.
"""

# MuJoCo's bindings and Warp's kernels carry no types
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportIndexIssue=false, reportOperatorIssue=false
# ruff: noqa: RUF046, UP018 - int(0) declares a variable of a kernel, which a literal would make a constant
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportInvalidTypeForm=false, reportReturnType=false
from __future__ import annotations

from typing import Any

import mujoco_warp as mjw
import numpy as np
import warp as wp
from mujoco_warp._src import collision_convex, collision_driver
from mujoco_warp._src.collision_core import contact_params, write_contact
from mujoco_warp._src.math import make_frame
from mujoco_warp._src.types import GeomType, vec5

FAR = wp.constant(1.0e6)  # m, the distance of what has not been found
SAME_FACE = wp.constant(0.995)  # cosine between normals of faces that count as one
SAME_EDGE = wp.constant(0.8)  # cosine between normals below which an edge beside a deeper contact counts
CAPSULE = wp.constant(int(GeomType.CAPSULE))
HFIELD = wp.constant(int(GeomType.HFIELD))
SPHERE = wp.constant(int(GeomType.SPHERE))
SPAN = 8  # cells along each axis whose highest node is known in advance
FLAT = 1.0e-5  # change of slope below which two cells count as one plane: MuJoCo keeps heights as float32, 0 to 1
RIDGES_X, RIDGES_Y, RIDGES_DIAGONAL = 1, 2, 4
_PAIRS = ((GeomType.HFIELD, GeomType.SPHERE), (GeomType.HFIELD, GeomType.CAPSULE))


@wp.struct
class Surface:
    """An hfield's surface in the geom's frame: nodes are ``cell`` apart, from ``corner`` on."""

    heights: wp.array[float]
    ceiling: wp.array[float]
    first: int
    rows: int
    columns: int
    corner: wp.vec2
    cell: wp.vec2
    scale: float


@wp.struct
class Contacts:
    """Up to four contacts; ``faces`` is 1 where the nearest point lies inside a triangle."""

    count: int
    dist: wp.vec4
    normal: wp.types.matrix(shape=(4, 3), dtype=float)
    faces: wp.vec4i


@wp.func
def node(s: Surface, row: int, column: int) -> wp.vec3:
    return wp.vec3(
        s.corner[0] + float(column) * s.cell[0],
        s.corner[1] + float(row) * s.cell[1],
        s.heights[s.first + row * s.columns + column] * s.scale,
    )


@wp.func
def cell_range(low: float, high: float, corner: float, cell: float, nodes: int) -> wp.vec2i:
    """First and last cell that an interval meets; empty if the last is smaller."""
    first = wp.max(0, int(wp.floor((low - corner) / cell)))
    return wp.vec2i(first, wp.min(nodes - 2, int(wp.floor((high - corner) / cell))))


@wp.func
def lies_below(s: Surface, rows: wp.vec2i, columns: wp.vec2i, height: float) -> bool:
    """Whether all nodes of these cells are lower than a height: without it most shapes would examine every cell."""
    for row in range(rows[0], rows[1] + 1, SPAN):
        for column in range(columns[0], columns[1] + 1, SPAN):
            if s.ceiling[s.first + row * s.columns + column] * s.scale > height:
                return False
    return True


@wp.func
def depth_in_column(s: Surface, p: wp.vec3) -> float:
    """How far a point lies below the surface, along z; negative above it and beyond the field."""
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
    """The nearest point of a triangle, and whether it lies inside, by its regions of vertices, edges and face."""
    ab, ac = b - a, c - a
    ap = p - a
    d1, d2 = wp.dot(ab, ap), wp.dot(ac, ap)
    if d1 <= 0.0 and d2 <= 0.0:
        return a, False
    bp = p - b
    d3, d4 = wp.dot(ab, bp), wp.dot(ac, bp)
    if d3 >= 0.0 and d4 <= d3:
        return b, False
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
    inverse = 1.0 / (va + vb + vc)
    return a + ab * (vb * inverse) + ac * (vc * inverse), True


@wp.func
def kept(found: Contacts, dist: float, normal: wp.vec3, face: int) -> Contacts:
    """Add a contact; of two that are the same the deeper stays, and of more than four the shallowest goes."""
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
def sphere_contacts(s: Surface, p: wp.vec3, radius: float, reach: float) -> Contacts:
    """The contacts of a sphere with distances less than ``reach``; the normal points out of the ground."""
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


@wp.func
def pruned(found: Contacts) -> Contacts:
    """Drop contacts at edges whose normal is near that of a deeper contact."""
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
def deepest(found: Contacts) -> int:
    best = int(0)
    for k in range(1, found.count):
        if found.dist[k] < found.dist[best]:
            best = k
    return best


@wp.func
def nearest_on_segments(p: wp.vec3, d1: wp.vec3, q: wp.vec3, d2: wp.vec3) -> wp.vec2:
    """The parameters, 0 to 1, of the nearest points of the segments p + t d1 and q + u d2."""
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


@wp.kernel(enable_backward=False)
def height_field_contacts(
    # the model's
    geom_type: wp.array[int],
    geom_condim: wp.array[int],
    geom_dataid: wp.array2d[int],
    geom_priority: wp.array[int],
    geom_solmix: wp.array2d[float],
    geom_solref: wp.array2d[wp.vec2],
    geom_solimp: wp.array2d[vec5],
    geom_size: wp.array2d[wp.vec3],
    geom_friction: wp.array2d[wp.vec3],
    geom_margin: wp.array2d[float],
    geom_gap: wp.array2d[float],
    geom_adhesion: wp.array2d[float],
    hfield_size: wp.array[wp.vec4],
    hfield_nrow: wp.array[int],
    hfield_ncol: wp.array[int],
    hfield_adr: wp.array[int],
    hfield_data: wp.array[float],
    hfield_ceiling: wp.array[float],
    hfield_ridges: wp.array[int],
    pair_dim: wp.array[int],
    pair_solref: wp.array2d[wp.vec2],
    pair_solreffriction: wp.array2d[wp.vec2],
    pair_solimp: wp.array2d[vec5],
    pair_margin: wp.array2d[float],
    pair_gap: wp.array2d[float],
    pair_adhesion: wp.array2d[float],
    pair_friction: wp.array2d[vec5],
    # the state's
    geom_xpos: wp.array2d[wp.vec3],
    geom_xmat: wp.array2d[wp.mat33],
    naconmax: int,
    ncollision: wp.array[int],
    collision_pair: wp.array[wp.vec2i],
    collision_pairid: wp.array[wp.vec2i],
    collision_worldid: wp.array[int],
    # out
    contact_dist: wp.array[float],
    contact_pos: wp.array[wp.vec3],
    contact_frame: wp.array[wp.mat33],
    contact_includemargin: wp.array[float],
    contact_friction: wp.array[vec5],
    contact_solref: wp.array[wp.vec2],
    contact_solreffriction: wp.array[wp.vec2],
    contact_solimp: wp.array[vec5],
    contact_dim: wp.array[int],
    contact_geom: wp.array[wp.vec2i],
    contact_efc_address: wp.array2d[int],
    contact_worldid: wp.array[int],
    contact_type: wp.array[int],
    contact_geomcollisionid: wp.array[int],
    contact_adhesion: wp.array[float],
    nacon: wp.array[int],
):
    """Write the contacts of a pair of the broad phase, if it is a height field and a sphere or capsule."""
    pair = wp.tid()
    if pair >= ncollision[0]:
        return
    geoms = collision_pair[pair]
    field, shape = geoms[0], geoms[1]
    kind = geom_type[shape]
    if geom_type[field] != HFIELD or (kind != SPHERE and kind != CAPSULE):
        return
    world = collision_worldid[pair]
    ground = geom_dataid[world % geom_dataid.shape[0], field]
    extent = hfield_size[ground]
    frame = geom_xmat[world, field]
    origin = geom_xpos[world, field]
    center = wp.transpose(frame) @ (geom_xpos[world, shape] - origin)
    size = geom_size[world % geom_size.shape[0], shape]
    axis = wp.vec3(0.0, 0.0, 0.0)
    if kind == CAPSULE:
        turned = wp.transpose(frame) @ geom_xmat[world, shape]
        axis = size[1] * wp.vec3(turned[0, 2], turned[1, 2], turned[2, 2])
    _, margin, gap, condim, friction, solref, solreffriction, solimp, adhesion = contact_params(
        geom_condim,
        geom_priority,
        geom_solmix,
        geom_solref,
        geom_solimp,
        geom_friction,
        geom_margin,
        geom_gap,
        geom_adhesion,
        pair_dim,
        pair_solref,
        pair_solreffriction,
        pair_solimp,
        pair_margin,
        pair_gap,
        pair_adhesion,
        pair_friction,
        collision_pair,
        collision_pairid,
        pair,
        world,
    )
    radius, reach = size[0], margin + gap
    if center[2] - wp.abs(axis[2]) - radius - reach > extent[2]:
        return
    s = Surface()
    s.heights = hfield_data
    s.ceiling = hfield_ceiling
    s.first = hfield_adr[ground]
    s.rows = hfield_nrow[ground]
    s.columns = hfield_ncol[ground]
    s.corner = wp.vec2(-extent[0], -extent[1])
    s.cell = wp.vec2(2.0 * extent[0] / float(s.columns - 1), 2.0 * extent[1] / float(s.rows - 1))
    s.scale = extent[2]

    # the point of the shape's axis, the normal and the distance of up to four contacts
    count = int(0)
    dist = wp.vec4()
    normal = wp.matrix(shape=(4, 3), dtype=float)
    point = wp.matrix(shape=(4, 3), dtype=float)
    if kind == SPHERE:
        found = sphere_contacts(s, center, radius, reach)
        for k in range(found.count):
            dist[k] = found.dist[k]
            normal[k] = found.normal[k]
            point[k] = center
        count = found.count
    else:
        # the two ends as spheres; then, in each half, the edge on which the middle lies, if it is deeper than the ends
        ends = wp.vec2(FAR, FAR)
        for end in range(2):
            p = center + (2.0 * float(end) - 1.0) * axis
            at_end = sphere_contacts(s, p, radius, reach + radius)
            if at_end.count > 0:
                best = deepest(at_end)
                ends[end] = at_end.dist[best]
                if ends[end] < reach:
                    dist[count] = ends[end]
                    normal[count] = at_end.normal[best]
                    point[count] = p
                    count += 1
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
            rows = wp.vec2i(0, -1)
        for row in range(rows[0], rows[1] + 1):
            for column in range(columns[0], columns[1] + 1):
                # in a valley or a plane the ends are nearer to the ground than the middle
                ridges = hfield_ridges[s.first + row * s.columns + column]
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
                dist[count] = middle[half]
                normal[count] = middle_normal[half]
                point[count] = middle_point[half]
                count += 1

    for k in range(count):
        if dist[k] < reach:
            position = point[k] - normal[k] * (radius + 0.5 * dist[k])
            write_contact(
                naconmax,
                k,
                dist[k],
                frame @ position + origin,
                make_frame(frame @ normal[k]),
                margin,
                gap,
                condim,
                friction,
                solref,
                solreffriction,
                solimp,
                adhesion,
                geoms,
                collision_pairid[pair],
                world,
                contact_dist,
                contact_pos,
                contact_frame,
                contact_includemargin,
                contact_friction,
                contact_solref,
                contact_solreffriction,
                contact_solimp,
                contact_dim,
                contact_geom,
                contact_efc_address,
                contact_worldid,
                contact_type,
                contact_geomcollisionid,
                contact_adhesion,
                nacon,
            )


_MODEL = (
    *("geom_type", "geom_condim", "geom_dataid", "geom_priority", "geom_solmix", "geom_solref", "geom_solimp"),
    *("geom_size", "geom_friction", "geom_margin", "geom_gap", "geom_adhesion"),
    *("hfield_size", "hfield_nrow", "hfield_ncol", "hfield_adr", "hfield_data", "hfield_ceiling", "hfield_ridges"),
    *("pair_dim", "pair_solref", "pair_solreffriction", "pair_solimp", "pair_margin", "pair_gap"),
    *("pair_adhesion", "pair_friction"),
)
_CONTACT = (
    *("dist", "pos", "frame", "includemargin", "friction", "solref", "solreffriction", "solimp", "dim", "geom"),
    *("efc_address", "worldid", "type", "geomcollisionid", "adhesion"),
)


def add_relief(model: mjw.Model) -> None:
    """Add ``hfield_ceiling`` and ``hfield_ridges`` to a model: one number for each node, in the order of the heights.

    The ceiling is the highest node of the next SPAN cells along both axes. Ridges are bits: which of the node's edges,
    along x, along y and to the diagonal neighbour, are higher than the surface beside them.
    """
    heights, starts = model.hfield_data.numpy(), model.hfield_adr.numpy()
    rows, columns = model.hfield_nrow.numpy(), model.hfield_ncol.numpy()
    ceiling, ridges = np.zeros_like(heights), np.zeros(len(heights), dtype=np.int32)
    for first, nrow, ncol in zip(starts, rows, columns):
        own = slice(first, first + nrow * ncol)
        z = heights[own].reshape(nrow, ncol)
        ceiling[own] = _highest(_highest(z).T).T.ravel()
        ridges[own] = _ridges(z.astype(np.float64)).ravel()
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


def convex_narrowphase(model: mjw.Model, data: mjw.Data, context: Any, table: list) -> None:
    """Launch this module's kernel for its pairs, and MuJoCo Warp's for the others of ``table``."""
    if model.nhfield:
        if not hasattr(model, "hfield_ceiling"):
            add_relief(model)
        inputs = [*(getattr(model, name) for name in _MODEL), data.geom_xpos, data.geom_xmat, data.naconmax]
        inputs += [data.ncollision, context.collision_pair, context.collision_pairid, context.collision_worldid]
        outputs = [*(getattr(data.contact, name) for name in _CONTACT), data.nacon]
        wp.launch(height_field_contacts, dim=data.naconmax, inputs=inputs, outputs=outputs)
        table = [pair for pair in table if pair not in _PAIRS]
    collision_convex.convex_narrowphase(model, data, context, table)


def install() -> None:
    """Let MuJoCo Warp call this module's ``convex_narrowphase`` from now on."""
    collision_driver.convex_narrowphase = convex_narrowphase
