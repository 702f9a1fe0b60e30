"""Warp kernels of ``warp_order``: constraint rows, forces and sums in a fixed order."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

from typing import Any

import warp as wp
from mujoco_warp._src.support import jac_dof

_CONTACT = wp.constant(5)  # first of mjtConstraint's types of contacts


@wp.kernel(enable_backward=False)
def row_keys(
    nefc: wp.array[wp.int32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    geom: wp.array[wp.vec2i],
    collision: wp.array[wp.int32],
    address: wp.array2d[wp.int32],
    keys: wp.array2d[wp.int64],
):
    """Compute each constraint's place in the order, at its first row: type, then joint, or pair of geoms and contact.

    The lowest byte is the number of its rows; a contact's rows are adjacent. Of constraints other than contacts every
    row counts as one, because those of one constraint are in order, and stay so.
    """
    env, row = wp.tid()
    if row >= wp.min(nefc[env], keys.shape[1]):
        return
    own = ident[env, row]
    if kind[env, row] < _CONTACT:
        keys[env, row] = (wp.int64(kind[env, row]) << wp.int64(56)) + (wp.int64(own) << wp.int64(8)) + wp.int64(1)
        return
    if row != address[own, 0]:
        return
    rows = wp.int32(0)
    for i in range(address.shape[1]):
        if address[own, i] >= 0:
            rows += 1
    pair = geom[own]
    key = wp.int64(_CONTACT)
    key = (key << wp.int64(18)) + wp.int64(pair[0])
    key = (key << wp.int64(18)) + wp.int64(pair[1])
    key = (key << wp.int64(12)) + wp.int64(collision[own])
    keys[env, row] = (key << wp.int64(8)) + wp.int64(rows)


@wp.func
def _rows_of(key: wp.int64):
    return wp.int32(key & wp.int64(255))


@wp.kernel(enable_backward=False)
def rank_rows(
    nefc: wp.array[wp.int32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    address: wp.array2d[wp.int32],
    keys: wp.array2d[wp.int64],
    rank: wp.array2d[wp.int32],
    source: wp.array2d[wp.int32],
):
    """Count the rows before each constraint; constraints with equal keys keep their order."""
    env, row = wp.tid()
    rows = wp.min(nefc[env], keys.shape[1])
    if row >= rows:
        return
    if kind[env, row] >= _CONTACT and row != address[ident[env, row], 0]:
        return
    key = keys[env, row]
    place = wp.int32(0)
    other = wp.int32(0)
    while other < rows:
        k = keys[env, other]
        if k < key or (k == key and other < row):
            place += _rows_of(k)
        other += _rows_of(k)
    for i in range(_rows_of(key)):
        rank[env, row + i] = place + i
        source[env, place + i] = row + i


@wp.kernel(enable_backward=False)
def plan_swaps(nefc: wp.array[wp.int32], source: wp.array2d[wp.int32]):
    """Replace the source of each place by where that row is after the swaps of all places before."""
    env = wp.tid()
    for i in range(wp.min(nefc[env], source.shape[1])):
        j = source[env, i]
        while j < i:
            j = source[env, j]
        source[env, i] = j


@wp.func
def _permute(env: int, rows: int, swaps: wp.array2d[wp.int32], x: wp.array2d[Any]):
    for i in range(rows):
        j = swaps[env, i]
        if j != i:
            kept = x[env, i]
            x[env, i] = x[env, j]
            x[env, j] = kept


@wp.kernel(enable_backward=False)
def permute_rows(
    nefc: wp.array[wp.int32],
    swaps: wp.array2d[wp.int32],
    njmax: int,
    nv: int,
    jacobian: wp.array3d[wp.float32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    pos: wp.array2d[wp.float32],
    margin: wp.array2d[wp.float32],
    stiffness: wp.array2d[wp.float32],
    vel: wp.array2d[wp.float32],
    aref: wp.array2d[wp.float32],
    frictionloss: wp.array2d[wp.float32],
):
    """Sort the rows in place, one thread per world and column."""
    env, column = wp.tid()
    rows = wp.min(nefc[env], njmax)
    if column < nv:
        for i in range(rows):
            j = swaps[env, i]
            if j != i:
                kept = jacobian[env, i, column]
                jacobian[env, i, column] = jacobian[env, j, column]
                jacobian[env, j, column] = kept
    elif column == nv:
        _permute(env, rows, swaps, kind)
    elif column == nv + 1:
        _permute(env, rows, swaps, ident)
    elif column == nv + 2:
        _permute(env, rows, swaps, pos)
    elif column == nv + 3:
        _permute(env, rows, swaps, margin)
    elif column == nv + 4:
        _permute(env, rows, swaps, stiffness)
    elif column == nv + 5:
        _permute(env, rows, swaps, vel)
    elif column == nv + 6:
        _permute(env, rows, swaps, aref)
    else:
        _permute(env, rows, swaps, frictionloss)


@wp.kernel(enable_backward=False)
def readdress(
    nacon: wp.array[wp.int32],
    worldid: wp.array[wp.int32],
    rank: wp.array2d[wp.int32],
    address: wp.array2d[wp.int32],
):
    """Update the rows' addresses in the contacts."""
    contact = wp.tid()
    if contact >= nacon[0]:
        return
    for k in range(address.shape[1]):
        row = address[contact, k]
        if row >= 0:
            address[contact, k] = rank[worldid[contact], row]


@wp.kernel(enable_backward=False)
def sort_ids(count: wp.array[wp.int32], done: wp.array[wp.bool], ids: wp.array2d[wp.int32]):
    """Sort each world's list of changed rows; a handful, by insertion."""
    env = wp.tid()
    if done[env]:
        return
    for i in range(1, count[env]):
        own = ids[env, i]
        j = int(i)
        while j > 0 and ids[env, j - 1] > own:
            ids[env, j] = ids[env, j - 1]
            j -= 1
        ids[env, j] = own


@wp.kernel(enable_backward=False)
def gradient_dot(
    nv: int,
    grad: wp.array2d[wp.float32],
    changed: wp.array[wp.int32],
    only_changed: wp.bool,
    done: wp.array[wp.bool],
    dot: wp.array[wp.float32],
):
    """Sum the squares of each world's gradient in order, where it was computed anew."""
    env = wp.tid()
    if done[env] or (only_changed and changed[env] == 0):
        return
    total = wp.float32(0.0)
    for i in range(nv):
        total += grad[env, i] * grad[env, i]
    dot[env] = total


@wp.kernel(enable_backward=False)
def add_to_parents(
    body_parentid: wp.array[wp.int32],
    level: wp.array[wp.int32],
    derivative: wp.array3d[wp.spatial_vector],
    result: wp.array3d[wp.spatial_vector],
):
    """Add the bodies of a level of the tree to their parents, siblings in order; the first sibling's thread adds all.

    It has the arguments of MuJoCo Warp's kernel, and both arrays are one.
    """
    env, node, dof = wp.tid()
    parent = body_parentid[level[node]]
    for earlier in range(node):
        if body_parentid[level[earlier]] == parent:
            return
    total = result[env, parent, dof]
    for sibling in range(node, level.shape[0]):
        if body_parentid[level[sibling]] == parent:
            total += derivative[env, level[sibling], dof]
    result[env, parent, dof] = total


@wp.kernel(enable_backward=False)
def compensate_gravity(
    opt_gravity: wp.array[wp.vec3],
    body_parentid: wp.array[wp.int32],
    body_rootid: wp.array[wp.int32],
    body_mass: wp.array2d[wp.float32],
    body_gravcomp: wp.array2d[wp.float32],
    dof_bodyid: wp.array[wp.int32],
    body_isdofancestor: wp.array2d[wp.int32],
    xipos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cdof: wp.array2d[wp.spatial_vector],
    qfrc_gravcomp: wp.array2d[wp.float32],
):
    """Sum the forces of gravity compensation body by body, one thread per world and degree of freedom."""
    env, dof = wp.tid()
    gravity = opt_gravity[env % opt_gravity.shape[0]]
    total = wp.float32(0.0)
    for body in range(1, body_parentid.shape[0]):
        share = body_gravcomp[env % body_gravcomp.shape[0], body]
        if share != 0.0:
            force = -gravity * body_mass[env % body_mass.shape[0], body] * share
            point = xipos[env, body]
            linear, _ = jac_dof(
                body_parentid, body_rootid, dof_bodyid, body_isdofancestor, subtree_com, cdof, point, body, dof, env
            )
            total += wp.dot(linear, force)
    qfrc_gravcomp[env, dof] = total


@wp.kernel(enable_backward=False)
def add_contact_forces_in_order(
    nefc: wp.array[wp.int32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    address: wp.array2d[wp.int32],
    geom: wp.array[wp.vec2i],
    geom_bodyid: wp.array[wp.int32],
    row_of_body: wp.array[wp.int32],
    wrench: wp.array[wp.spatial_vector],
    contact_forces: wp.array2d[wp.float32],
):
    """Add the forces of each world's contacts in the order of their rows, one thread per world.

    As ``add_contact_forces``; contacts without rows have no force.
    """
    env = wp.tid()
    for row in range(wp.min(nefc[env], kind.shape[1])):
        if kind[env, row] >= _CONTACT:
            contact = ident[env, row]
            if address[contact, 0] == row:
                force = wp.spatial_top(wrench[contact])
                for side in range(2):
                    at = row_of_body[geom_bodyid[geom[contact][side]]]
                    if at >= 0:
                        for i in range(3):
                            contact_forces[env, 3 * at + i] = (
                                contact_forces[env, 3 * at + i] + (2.0 * float(side) - 1.0) * force[i]
                            )


@wp.kernel(enable_backward=False)
def add_sensor_forces_in_order(
    nefc: wp.array[wp.int32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    address: wp.array2d[wp.int32],
    geom: wp.array[wp.vec2i],
    pos: wp.array[wp.vec3],
    wrench: wp.array[wp.spatial_vector],
    geom_bodyid: wp.array[wp.int32],
    sensor_of_body: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    sensor_forces: wp.array2d[wp.float32],
):
    """As ``add_sensor_forces``, in the order of the rows, one thread per world."""
    env = wp.tid()
    for row in range(wp.min(nefc[env], kind.shape[1])):
        if kind[env, row] >= _CONTACT:
            contact = ident[env, row]
            if address[contact, 0] == row:
                for side in range(2):
                    body = geom_bodyid[geom[contact][side]]
                    sensor = sensor_of_body[body]
                    if sensor >= 0:
                        sign = 2.0 * float(side) - 1.0
                        force = sign * wp.spatial_top(wrench[contact])
                        arm = pos[contact] - xpos[env, body]
                        torque = sign * wp.spatial_bottom(wrench[contact]) + wp.cross(arm, force)
                        for i in range(3):
                            at = 6 * sensor + i
                            sensor_forces[env, at] = sensor_forces[env, at] + force[i]
                            sensor_forces[env, at + 3] = sensor_forces[env, at + 3] + torque[i]
