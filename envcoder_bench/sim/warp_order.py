"""A fixed order of constraints and sums in MuJoCo Warp's worlds, so that a world's bits depend on nothing else.

MuJoCo Warp gives contacts and constraint rows their places by atomic counters, and adds some numbers by atomics. Their
order changes from run to run and with the number of worlds, and so does the rounding of sums over them. Its own option
``opt.deterministic`` does not sort contacts and rows (4.0), and sorts every record of every atomic operation.
"""

# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportPrivateImportUsage=false

import functools
from typing import Any

import mujoco_warp as mjw
import warp as wp
from mujoco_warp._src import derivative, passive, solver

from envcoder_bench.sim.warp_order_kernels import (
    add_to_parents,
    compensate_gravity,
    gradient_dot,
    permute_rows,
    plan_swaps,
    rank_rows,
    readdress,
    row_keys,
    sort_ids,
)

_MAX_DOFS = 50  # beyond, the solver splits dot products over threads, and adds the parts by atomics


class RowOrder:
    """Sorts the constraint rows of each world, at every substep; it must be created within Warp's scope of the device.

    Args:
        model, data: the worlds. The model's callback for controls, which MuJoCo Warp calls between the construction of
            constraints and the solver, is set.

    Raises:
        ValueError: the model has more degrees of freedom than are supported, or this MuJoCo Warp has another solver.
    """

    def __init__(self, model: mjw.Model, data: mjw.Data) -> None:
        needed = [(solver, "_update_gradient"), (solver, "_update_gradient_incremental")]
        needed += [(derivative, "deriv_rne_cfrcbody_backward"), (passive, "_qfrc_passive_kernel")]
        if not all(hasattr(module, name) for module, name in needed):
            raise ValueError("deterministic simulation needs mujoco-warp 4.0: install mujoco-warp==4.0.0")
        if model.nv > _MAX_DOFS or model.is_sparse:
            raise ValueError(
                f"deterministic simulation supports models of at most {_MAX_DOFS} degrees of freedom with a dense"
                f" Jacobian; this one has {model.nv}, " + ("sparse" if model.is_sparse else "dense")
            )
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


def _is_ordered(model: mjw.Model) -> bool:
    return isinstance(getattr(model.callback.control, "__self__", None), RowOrder)


@functools.cache
def _order_solver() -> None:
    """Replace what adds by atomics in MuJoCo Warp's solver and in its integrator ``implicit``.

    Other models of the process have the solver as it was.
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

    derivative.deriv_rne_cfrcbody_backward = lambda deterministic=False: add_to_parents
    solver._update_gradient = update_gradient
    solver._update_gradient_incremental = update_gradient_incremental


def _sum_gradient(m: Any, d: Any, ctx: Any, changed: wp.array, only_changed: bool) -> None:
    wp.launch(
        gradient_dot, dim=d.nworld, inputs=[m.nv, ctx.grad, changed, only_changed, ctx.done], outputs=[ctx.grad_dot]
    )
