"""MuJoCo Warp's constraints and sums in a fixed order, so that a world's bits depend only on its own state.

Replaces ``solver._update_gradient`` and ``_update_gradient_incremental``, and of ``derivative`` the kernel that adds
forces to parent bodies; uses ``passive._qfrc_passive_kernel`` and ``support.jac_dof``. Models without a ``RowOrder``
are simulated as before.

Why: MuJoCo Warp gives contacts and constraint rows their places by atomic counters, and adds some numbers by atomics.
Their order changes from run to run and with the number of worlds, and so does the rounding of sums over them. Its own
option ``opt.deterministic`` does not sort contacts and rows (4.0), and sorts every record of every atomic operation.

Upstream: google-deepmind/mujoco_warp issue 562, with the open pull requests 1422 and 1533.

Without these parts, a deterministic simulation is an error.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportPrivateImportUsage=false
# Warp compiles these functions. They only look like Python, so that a type checker misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import functools
from typing import Any

import mujoco_warp as mjw
import warp as wp

from mujoco_batches.compat import difference

try:
    from mujoco_warp._src import derivative, passive, solver, support
except ImportError:
    missing: Any = None
    derivative = passive = solver = support = missing

jac_dof: Any = getattr(support, "jac_dof", None)

_MAX_DOFS = 50  # with more, the solver splits dot products over threads, and adds the parts by atomics


class RowOrder:
    """Sorts the constraint rows of each world, at every substep; it must be created within Warp's scope of the device.

    Args:
        model, data: the worlds. The model's callback for controls, which MuJoCo Warp calls between the construction of
            constraints and the solver, is set.

    Raises:
        ValueError: the model has more degrees of freedom than are supported, or this MuJoCo Warp has another solver.
    """

    def __init__(self, model: mjw.Model, data: mjw.Data) -> None:
        reason = _difference()
        if reason:
            raise ValueError(f"deterministic simulation needs mujoco-warp 4.0: install mujoco-warp~=4.0.0 ({reason})")
        if model.nv > _MAX_DOFS or model.is_sparse:
            raise ValueError(
                f"deterministic simulation supports models of at most {_MAX_DOFS} degrees of freedom with a dense"
                f" Jacobian; this one has {model.nv}, " + ("sparse" if model.is_sparse else "dense")
            )
        # MuJoCo Warp calls these between the contacts and the solver
        shape = (data.nworld, data.njmax)
        self._keys = wp.zeros(shape, dtype=wp.int64)
        self._rank = wp.zeros(shape, dtype=wp.int32)
        self._source = wp.zeros(shape, dtype=wp.int32)
        model.callback.control = self.sort
        if model.body_gravcomp.numpy().any() and not model.opt.disableflags & mjw.DisableBit.GRAVITY:
            model.callback.passive = _sum_gravity_compensation
        _order_solver()

    @property
    def capacity(self) -> int:
        """Bytes of the arrays."""
        return self._keys.capacity + self._rank.capacity + self._source.capacity

    def sort(self, model: mjw.Model, data: mjw.Data) -> None:
        """Launch the sort of the present rows."""
        efc, contact, shape = data.efc, data.contact, (data.nworld, data.njmax)
        # rank the rows by key, exchange them in place, and update the contacts' addresses
        wp.launch(
            row_keys,
            dim=shape,
            inputs=[data.nefc, efc.type, efc.id, contact.geom, contact.geomcollisionid, contact.efc_address],
            outputs=[self._keys],
        )
        wp.launch(
            rank_rows,
            dim=shape,
            inputs=[data.nefc, efc.type, efc.id, contact.efc_address, self._keys],
            outputs=[self._rank, self._source],
        )
        wp.launch(plan_swaps, dim=data.nworld, inputs=[data.nefc], outputs=[self._source])
        wp.launch(
            permute_rows,
            dim=(data.nworld, model.nv + 8),
            inputs=[data.nefc, self._source, data.njmax, model.nv],
            outputs=[efc.J, efc.type, efc.id, efc.pos, efc.margin, efc.D, efc.vel, efc.aref, efc.frictionloss],
        )
        wp.launch(
            readdress,
            dim=data.naconmax,
            inputs=[data.nacon, contact.worldid, self._rank],
            outputs=[contact.efc_address],
        )


def _sum_gravity_compensation(model: mjw.Model, data: mjw.Data) -> None:
    """Compute the forces of gravity compensation again, and the passive forces from them."""
    body = [model.opt.gravity, model.body_parentid, model.body_rootid, model.body_mass, model.body_gravcomp]
    dofs = [model.dof_bodyid, model.body_isdofancestor]
    wp.launch(
        compensate_gravity,
        dim=(data.nworld, model.nv),
        inputs=[*body, *dofs, data.xipos, data.subtree_com, data.cdof],
        outputs=[data.qfrc_gravcomp],
    )
    wp.launch(
        passive._qfrc_passive_kernel(model.has_fluid, model.flg_adhesion, True),
        dim=(data.nworld, model.nv),
        inputs=[
            model.jnt_actgravcomp, model.dof_jntid, data.qfrc_spring, data.qfrc_damper, data.qfrc_gravcomp,
            data.qfrc_fluid, data.qfrc_adhesion,
        ],
        outputs=[data.qfrc_passive],
    )  # fmt: skip


def _difference() -> str:
    """Return the difference of MuJoCo Warp's parts from those of 4.0; empty if there is none."""
    update = {"_update_gradient": ("m", "d", "ctx"), "_update_gradient_incremental": ("m", "d", "ctx", "stable_fast")}
    jacobian = ("body_parentid", "body_rootid", "dof_bodyid", "body_isdofancestor", "subtree_com_in", "cdof_in")
    return (
        difference(solver, update)
        or difference(derivative, {"deriv_rne_cfrcbody_backward": ("deterministic",)})
        or difference(passive, {"_qfrc_passive_kernel": ("has_fluid", "flg_adhesion", "gravity_enabled")})
        or difference(support, {"jac_dof": (*jacobian, "point", "bodyid", "dofid", "worldid")})
    )


def _is_ordered(model: mjw.Model) -> bool:
    return isinstance(getattr(model.callback.control, "__self__", None), RowOrder)


@functools.cache
def _order_solver() -> None:
    """Replace the atomic sums in MuJoCo Warp's solver and in its integrator ``implicit``.

    Other models of the process are simulated as before.
    """
    rebuild, update = solver._update_gradient, solver._update_gradient_incremental

    def update_gradient(m: Any, d: Any, ctx: Any, *args: Any, **kwargs: Any) -> None:
        rebuild(m, d, ctx, *args, **kwargs)
        if _is_ordered(m):
            _sum_gradient(m, d, ctx, d.nefc, False)

    def update_gradient_incremental(m: Any, d: Any, ctx: Any, stable_fast: bool = False) -> None:
        if not _is_ordered(m):
            update(m, d, ctx, stable_fast)
            return
        wp.launch(sort_ids, dim=d.nworld, inputs=[ctx.quad_changed_count, ctx.done], outputs=[ctx.quad_changed_ids])
        update(m, d, ctx, stable_fast)
        _sum_gradient(m, d, ctx, ctx.state_changed_count if stable_fast else d.nefc, stable_fast)

    # the backward pass of the integrator adds to parents in a fixed order
    derivative.deriv_rne_cfrcbody_backward = lambda deterministic=False: add_to_parents
    solver._update_gradient = update_gradient
    solver._update_gradient_incremental = update_gradient_incremental


def _sum_gradient(m: Any, d: Any, ctx: Any, changed: wp.array, only_changed: bool) -> None:
    wp.launch(
        gradient_dot, dim=d.nworld, inputs=[m.nv, ctx.grad, changed, only_changed, ctx.done], outputs=[ctx.grad_dot]
    )


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

    The lowest byte is the number of its rows; a contact's rows are adjacent. Each row of another constraint counts as a
    constraint of its own, because the rows of such a constraint are in order and stay so.
    """
    env, row = wp.tid()
    if row >= wp.min(nefc[env], keys.shape[1]):
        return
    number = ident[env, row]  # the number of a joint or a contact
    if kind[env, row] < _CONTACT:
        keys[env, row] = (wp.int64(kind[env, row]) << wp.int64(56)) + (wp.int64(number) << wp.int64(8)) + wp.int64(1)
        return
    if row != address[number, 0]:
        return
    rows = wp.int32(0)
    for i in range(address.shape[1]):
        if address[number, i] >= 0:
            rows += 1
    pair = geom[number]
    key = wp.int64(_CONTACT)
    key = (key << wp.int64(18)) + wp.int64(pair[0])
    key = (key << wp.int64(18)) + wp.int64(pair[1])
    key = (key << wp.int64(12)) + wp.int64(collision[number])
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
    # a contact has several rows, which stay together
    key = keys[env, row]
    before = wp.int32(0)
    other = wp.int32(0)
    while other < rows:
        k = keys[env, other]
        if k < key or (k == key and other < row):
            before += _rows_of(k)
        other += _rows_of(k)
    for i in range(_rows_of(key)):
        rank[env, row + i] = before + i
        source[env, before + i] = row + i


@wp.kernel(enable_backward=False)
def plan_swaps(nefc: wp.array[wp.int32], source: wp.array2d[wp.int32]):
    """Replace each row's source by its position after the swaps of all rows before it."""
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
    # columns of the Jacobian, then one thread for each field
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
    """Sort each world's list of changed rows by insertion; there are only a few."""
    env = wp.tid()
    if done[env]:
        return
    for i in range(1, count[env]):
        row = ids[env, i]
        j = int(i)
        while j > 0 and ids[env, j - 1] > row:
            ids[env, j] = ids[env, j - 1]
            j -= 1
        ids[env, j] = row


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

    It has the arguments of MuJoCo Warp's kernel; both arrays are the same.
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
