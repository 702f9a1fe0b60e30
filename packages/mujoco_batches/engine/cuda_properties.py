"""Properties of MuJoCo Warp's worlds: one row for all worlds until one differs, then one row per world."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import copy
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp

from mujoco_batches.engine import cuda_kernels as kernels
from mujoco_batches.engine.layout import Layout
from mujoco_batches.engine.numerics import drives, joint_inertias, least_weights, may_need_steadying
from mujoco_batches.scene.properties import DOF_PROPERTIES

# constants that mj_setConst computes from masses and armatures, and mujoco_warp uses
_CONSTANTS = ("dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0", "body_subtreemass")
_TENDON_FLAGS = {"tendon_damping": "has_tendon_damping", "tendon_stiffness": "has_tendon_stiffness"}
_MASS_FIELDS = frozenset(mujoco.MjModel._setconst_inputs)  # the constants are functions of these fields


class WarpProperties:
    """Properties on the host, and their copies on the device, which ``flush`` updates.

    Attributes:
        drives: mode, stiffness, damping, effort and max_velocity of each DOF, ``(1, dofs)``, or ``(num_envs, dofs)``
            once worlds differ; commands are the engine's.
        steadied: whether there is a drive that ``kernels.steady`` may damp; then each world has rows.
    """

    def __init__(self, host: mujoco.MjModel, model: mjw.Model, data: mjw.Data, layout: Layout) -> None:
        self._host, self._model, self._data, self._layout = copy.copy(host), model, data, layout
        self._dofs = np.zeros((1, len(layout.dof_qpos)), DOF_PROPERTIES)
        self._own: dict[str, np.ndarray] = {}  # fields of which each world has a row
        self._changed = {"constants"}
        self._worlds = np.ones(data.nworld, dtype=bool)  # worlds with changed rows
        self._least_weights = least_weights(host)
        self._moved = True
        self.drives: Any = kernels.Drives()
        self.drives.mode = wp.zeros(self._dofs.shape, dtype=wp.int32)
        for name in ("stiffness", "damping", "effort", "max_velocity"):
            setattr(self.drives, name, wp.zeros(self._dofs.shape, dtype=wp.float32))
        self._inertia = _least_inertias(host)[layout.dof_qvel]  # while worlds are alike
        self.steadied = False

    def set_dofs(self, env: int | None, dofs: slice, properties: np.ndarray) -> None:
        """Set rows of ``DOF_PROPERTIES`` of a world, or of all: ``(num_envs, rows)`` or ``(rows,)``."""
        rows = np.asarray(properties)
        worlds = slice(None) if env is None else env
        present = self._dofs[slice(None) if len(self._dofs) == 1 else worlds, dofs]
        self._changed |= {"constants"} if (present["armature"] != rows["armature"]).any() else set()
        if len(self._dofs) == 1:
            if env is not None and (present == rows).all():
                return
            if env is None and (rows.ndim == 1 or (rows == rows[:1]).all()):
                rows = np.atleast_2d(rows)[:1]
            else:
                self._dofs = np.repeat(self._dofs, self._data.nworld, axis=0)
        self._dofs[worlds, dofs] = rows
        self._worlds[worlds] = True
        self._changed.add("dofs")

    def set_fields(self, env: int, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Set rows of fields of MuJoCo's model in a world: ``{field: (ids, values)}``."""
        for name, (ids, values) in fields.items():
            rows = self._rows(name, env)
            rows[ids] = np.reshape(values, rows[ids].shape)
            if name in _MASS_FIELDS:
                self._changed.add("constants")

    def set_gravity(self, gravity: np.ndarray) -> None:
        """Set the gravity, ``(3,)`` of all worlds or ``(num_envs, 3)``."""
        rows, present = np.asarray(gravity).reshape(-1, 3), self._model.opt.gravity.shape[0]
        self._upload(self._model.opt, "gravity", np.repeat(rows, present, axis=0) if len(rows) == 1 else rows)

    def _rows(self, name: str, env: int) -> np.ndarray:
        """Return a field's rows of a world on the host to write into."""
        if name not in self._own:
            field = getattr(self._host, name).astype(np.float32)
            self._own[name] = np.repeat(field[None], self._data.nworld, axis=0)
            self._changed |= {"inertias"} if name in _MASS_FIELDS else set()
        self._changed.add(name)
        self._worlds[env] = True
        return self._own[name][env]

    def flush(self) -> bool:
        """Update the device; return whether an array was replaced since the last call."""
        if self._changed:
            worlds = np.flatnonzero(self._worlds)
            if not self.steadied and self._changed & {"dofs", "inertias"} and self._need_steadying():
                self.steadied = self._moved = True  # a step launches another kernel
                self._changed.add("dofs")
            if "dofs" in self._changed:
                self._flush_dofs(worlds)
            for name in self._changed & self._own.keys():
                rows, each = self._own[name], getattr(self._model, name).shape[0] == self._data.nworld
                self._upload(self._model, name, rows[worlds] if each else rows, worlds if each else None)
            for name in _TENDON_FLAGS.keys() & self._changed:
                self._raise_flag(_TENDON_FLAGS[name], bool(self._own[name].any()))
            if "constants" in self._changed:
                self._flush_constants()
            self._changed.clear()
            self._worlds[:] = False
        moved, self._moved = self._moved, False
        return moved

    def _need_steadying(self) -> bool:
        """Return whether drives may need damping; the inertias of worlds with their own masses are not known here."""
        settings, alike = drives(self._dofs), not self._own.keys() & _MASS_FIELDS
        return may_need_steadying(settings, settings.armature + self._inertia * alike, self._host.opt.timestep)

    def _flush_dofs(self, worlds: np.ndarray) -> None:
        """Update fields that depend on DOF properties: all rows, or those of some worlds once each has rows."""
        host, layout = self._host, self._layout
        # damping that steadies drives is a row of each world
        if self.steadied and len(self._dofs) == 1:
            self._dofs = np.repeat(self._dofs, self._data.nworld, axis=0)
        each = len(self._dofs) > 1 and self.drives.mode.shape[0] == len(self._dofs)
        new, count = drives(self._dofs[worlds] if each else self._dofs), len(worlds) if each else len(self._dofs)

        def filled(field: np.ndarray, ids: np.ndarray, values: np.ndarray) -> np.ndarray:
            rows = np.repeat(field[None].astype(np.float32), count, axis=0)
            rows[:, ids] = values
            return rows

        # drives are MuJoCo's position actuators: force = gain * target + bias * (1, position, velocity)
        bias = np.repeat(host.actuator_biasprm[None].astype(np.float32), count, axis=0)
        bias[:, :, 1], bias[:, :, 2] = new.bias_position, new.bias_velocity
        fields = {
            "actuator_biasprm": bias,
            "actuator_forcerange": np.stack([-new.force_limit, new.force_limit], axis=-1),
            "jnt_stiffness": filled(host.jnt_stiffness, layout.dof_joint, new.spring),
            "dof_damping": filled(host.dof_damping, layout.dof_qvel, new.damper),
            "dof_armature": filled(host.dof_armature, layout.dof_qvel, new.armature),
            "jnt_range": filled(host.jnt_range, layout.dof_joint, np.stack([new.lower, new.upper], axis=-1)),
        }
        drive_rows = {"mode": new.mode, "stiffness": new.stiffness, "damping": new.damping, "effort": new.force_limit}
        drive_rows["max_velocity"] = np.minimum(new.max_velocity, 1e30)
        # rows of some worlds in place; a first row of each needs a new array
        for owner, values in ((self._model, fields), (self.drives, drive_rows)):
            for name, rows in values.items():
                self._upload(owner, name, rows, worlds if each else None)
        # drives make the unconstrained acceleration the result of an iterative solve
        self._raise_flag("has_efm_actuator", bool(new.bias_position.any() or new.bias_velocity.any()))

    def _raise_flag(self, name: str, value: bool) -> None:
        """Enable a part of mujoco_warp that it skips for models without it."""
        self._moved |= value and not getattr(self._model, name)
        setattr(self._model, name, value or getattr(self._model, name))

    def _flush_constants(self) -> None:
        """Recompute constants that depend on masses and armatures, as ``mj_setConst`` does."""
        if len(self._dofs) == 1 and not self._own.keys() & _MASS_FIELDS:
            self._host.dof_armature[self._layout.dof_qvel] = drives(self._dofs).armature[0]
            mujoco.mj_setConst(self._host, mujoco.MjData(self._host))
            weights = self._host.body_invweight0
            weights[:, 0] = np.maximum(weights[:, 0], self._least_weights * weights[:, 1])
            for name in _CONSTANTS:
                self._upload(self._model, name, getattr(self._host, name)[None])
            return
        for name in _CONSTANTS:
            field = getattr(self._model, name)
            if field.shape[0] == 1 and field.size:
                self._upload(self._model, name, np.repeat(field.numpy(), self._data.nworld, axis=0))
        # without the kinematic constants, which would overwrite the attractors' targets
        groups = int(mjw.SetConstGroup.FIXED | mjw.SetConstGroup.INERT0)
        mjw.set_const(self._model, self._data, groups=groups)
        weights = wp.to_torch(self._model.body_invweight0)
        least = torch.tensor(self._least_weights, dtype=torch.float32).to(weights.device)
        weights[..., 0] = torch.maximum(weights[..., 0], least * weights[..., 1])

    def _upload(self, owner: Any, name: str, rows: np.ndarray, worlds: np.ndarray | None = None) -> None:
        """Copy rows of some worlds to a field on the device, or all rows, to a new array if their number differs."""
        field = getattr(owner, name)
        if worlds is None and rows.shape[0] != field.shape[0]:
            field = wp.zeros((rows.shape[0], *field.shape[1:]), dtype=field.dtype, device=field.device)
            setattr(owner, name, field)
            self._moved = True
        if not field.size or not len(rows):
            return
        target = wp.to_torch(field)
        values = np.ascontiguousarray(rows, dtype=np.int32 if field.dtype == wp.int32 else np.float32)
        new = torch.from_numpy(values).view(len(rows), *target.shape[1:])
        if worlds is None or len(worlds) == len(target):
            target.copy_(new, non_blocking=True)
        else:
            ids, new = (x.to(target.device, non_blocking=True) for x in (torch.from_numpy(worlds), new))
            target.index_copy_(0, ids, new)


def _least_inertias(model: mujoco.MjModel) -> np.ndarray:
    """Return ``numerics.joint_inertias`` without any armature, ``(nv,)``: those of a task can only be larger."""
    model = copy.copy(model)
    model.dof_armature[:] = 0.0
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return joint_inertias(model.dof_invweight0)
