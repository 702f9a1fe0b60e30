"""Properties of the CPU engine's environments: drives, masses, friction, and other rows of MuJoCo's model."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
from mujoco.batch import Batch

from mujoco_batches.engine.layout import Layout
from mujoco_batches.engine.numerics import drives, joint_inertias, least_weights, may_need_steadying, steadying
from mujoco_batches.scene.params import DOF_MODE_POS, DOF_MODE_VEL
from mujoco_batches.scene.properties import DOF_PROPERTIES

_MASSES = ("body_mass", "body_ipos", "body_iquat", "body_inertia")


class CpuProperties:
    """Properties as rows of the batch's model; ``flush`` updates what is derived from them.

    As long as the rows of all environments are equal they share one model, because MuJoCo copies the rows of each in
    each step.

    Attributes:
        mode, stiffness, damping, max_velocity: ``(num_envs, dofs)``.
        least_max_velocity: the least ``max_velocity`` of all.
        armature: ``(num_envs, nv)``, as MuJoCo's ``dof_armature``.
        mass, ipos, iquat, inertia: ``(num_envs, nbody, ...)``, as MuJoCo's ``body_*``.
        gravity: ``(num_envs, 3)``.
        positional: whether all drives are driven by positions.
        written: whether rows were set since ``flush``.
        steadied: whether there is a drive that ``steady`` may damp.
    """

    def __init__(self, batch: Batch, layout: Layout, num_envs: int) -> None:
        model, dofs = layout.model, (num_envs, len(layout.dof_qpos))
        self._batch, self._layout = batch, layout
        self._shared, self.written = True, False  # whether environments share the model
        self._rows: dict[str, np.ndarray] = {}
        self._flags = int(batch.model.opt.disableflags)
        batch.set_models(batch.model)
        self._bind()
        self.mode, self.stiffness, self.damping = (np.zeros(dofs) for _ in range(3))
        self.max_velocity, self.least_max_velocity = np.full(dofs, np.inf), np.inf
        self.mass, self.ipos, self.iquat, self.inertia = (
            np.broadcast_to(getattr(model, name), (num_envs, *getattr(model, name).shape)) for name in _MASSES
        )
        self._dofs = np.zeros(dofs, DOF_PROPERTIES)
        self.positional = self.steadied = False
        self._least_weights = least_weights(model)
        self._changed = np.ones(num_envs, dtype=bool)  # environments whose derived constants are outdated
        self._unchecked = np.ones(num_envs, dtype=bool)  # environments whose drives may need damping since

    def _bind(self) -> None:
        """Name the rows of fields."""
        self._bias, self._force_range = self._field("actuator_biasprm"), self._field("actuator_forcerange")
        self._spring, self._damper = self._field("jnt_stiffness"), self._field("dof_damping")
        self.armature, self._range = self._field("dof_armature"), self._field("jnt_range")
        self.gravity, self._attractors = self._field("opt.gravity"), self._field("eq_data")
        for name in self._rows.keys() & set(_MASSES):
            setattr(self, name.removeprefix("body_"), self._field(name))

    def _field(self, name: str) -> np.ndarray:
        """Return a field of the model in all environments, ``(num_envs, ...)``, to be read and written."""
        if not self._shared:
            return self._batch.expand(name)
        if name not in self._rows:
            self._rows[name] = np.repeat(_values(self._batch.model, name)[None], self._batch.nsim, axis=0)
        return self._rows[name]

    @property
    def _weights(self) -> np.ndarray:
        if not self._shared:
            return self._batch.expand("dof_invweight0")
        weights = self._batch.model.dof_invweight0
        return np.broadcast_to(weights, (self._batch.nsim, len(weights)))

    def _share(self) -> None:
        """Give the rows to the model if those of all environments are equal, else to each environment its own."""
        if any((rows != rows[:1]).any() for rows in self._rows.values()):
            self._part()
            return
        for name, rows in self._rows.items():
            _values(self._batch.model, name)[...] = rows[0]
        self._batch.set_models(self._batch.model)

    def _part(self) -> None:
        """Let each environment have its own fields from now on."""
        self._shared = False
        flags = self._batch.model.opt.disableflags
        self._batch.set_models(None)
        self._batch.expand("opt.disableflags")[...] = flags
        for name, rows in self._rows.items():
            self._batch.expand(name)[...] = rows
        self._changed[:] = True
        self._bind()
        self._rows.clear()

    def disable(self, flags: int) -> None:
        """Let flags of ``mjtDisableBit``, and those of the layout's model, be the disabled ones in all environments."""
        flags |= self._flags
        if self._shared:
            self._batch.model.opt.disableflags = flags
            self._batch.set_models(self._batch.model)  # as mujoco.batch asks after each change
        else:
            self._batch.expand("opt.disableflags")[...] = flags

    def set_dofs(self, env: int | None, dofs: slice, properties: np.ndarray) -> None:
        """Set rows of ``DOF_PROPERTIES``, as ``Engine.set_dof_properties``."""
        rows, self.written = slice(None) if env is None else env, True
        joints, qvel = self._layout.dof_joint[dofs], self._layout.dof_qvel[dofs]
        self._dofs[rows, dofs], self._unchecked[rows] = properties, True
        new = drives(properties)
        for name in ("mode", "stiffness", "damping"):
            getattr(self, name)[rows, dofs] = getattr(new, name)
        self.positional = bool((self.mode == DOF_MODE_POS).all())
        self._bias[rows, dofs, 1], self._bias[rows, dofs, 2] = new.bias_position, new.bias_velocity
        self._force_range[rows, dofs] = np.stack([-new.force_limit, new.force_limit], axis=-1)
        for field, ids, values in ((self._spring, joints, new.spring), (self._damper, qvel, new.damper)):
            field[rows, ids] = values
        self._changed[rows] |= (self.armature[rows, qvel] != new.armature).any(axis=-1)
        self.armature[rows, qvel] = new.armature
        self._range[rows, joints] = np.stack([new.lower, new.upper], axis=-1)
        self.max_velocity[rows, dofs] = new.max_velocity
        self.least_max_velocity = self.max_velocity.min(initial=np.inf)

    def steady(self, error: np.ndarray, velocity: np.ndarray, target: np.ndarray) -> None:
        """Damp joints as drives need it, by the last arguments of ``steadying``, ``(num_envs, dofs)``."""
        if self._shared:  # the damping differs by the state
            self._part()
            self.flush()
        columns, step = self._layout.dof_qvel, self._layout.model.opt.timestep
        inertia, effort = joint_inertias(self._weights[:, columns]), self._force_range[:, :, 1]
        settings = (self.mode, self.stiffness, self.damping, effort, self.max_velocity)
        more = steadying(*settings, inertia, step, error, velocity, target)
        driven = (self.mode == DOF_MODE_POS) | (self.mode == DOF_MODE_VEL)
        self._damper[:, columns] = np.where(driven, more, self._damper[:, columns])

    def set_fields(self, env: int, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Set rows of fields of the model in one environment: ``{field: (ids, values)}``."""
        for name, (ids, values) in fields.items():
            rows, self.written = self._field(name), True
            rows[env, ids] = np.reshape(values, rows[env, ids].shape)
            if name in _MASSES:  # until then those of the model
                setattr(self, name.removeprefix("body_"), rows)
            self._changed[env] |= name in mujoco.MjModel._setconst_inputs

    def set_gravity(self, gravity: np.ndarray) -> None:
        """Set the gravity, ``(3,)`` of all environments or ``(num_envs, 3)``."""
        self.gravity[...], self.written = gravity, True

    def flush(self) -> None:
        """Update MuJoCo's constants and ``steadied``, for the environments whose properties changed."""
        if self.written:
            self.written = False
            if self._shared:
                self._share()
        if self._changed.any() and self._shared:
            model, attractors = self._batch.model, self._attractors[0]
            mujoco.mj_setConst(model, mujoco.MjData(model))
            model.eq_data[...] = attractors  # whose targets it has replaced
            weights = model.body_invweight0
            weights[:, 0] = np.maximum(weights[:, 0], self._least_weights * weights[:, 1])
            self._batch.set_models(model)
            self._unchecked |= self._changed
            self._changed[:] = False
        elif self._changed.any():
            changed = np.flatnonzero(self._changed)
            attractors = self._attractors[changed].copy()
            self._batch.set_const(changed)
            self._attractors[changed] = attractors  # whose targets it would replace
            weights = self._batch.expand("body_invweight0")
            weights[changed, :, 0] = np.maximum(weights[changed, :, 0], self._least_weights * weights[changed, :, 1])
            self._unchecked |= self._changed
            self._changed[:] = False
        if self._unchecked.any():
            inertia = joint_inertias(self._weights[self._unchecked][:, self._layout.dof_qvel])
            unchecked, step = drives(self._dofs[self._unchecked]), self._layout.model.opt.timestep
            self.steadied |= may_need_steadying(unchecked, inertia, step)
            self._unchecked[:] = False


def _values(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Return a field of a model, or of its options as ``opt.NAME``, to be read and written."""
    return getattr(model.opt, name[4:]) if name.startswith("opt.") else getattr(model, name)
