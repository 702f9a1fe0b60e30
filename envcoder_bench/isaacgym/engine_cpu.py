"""The tensor interface's engine on the CPU: ``mujoco.batch``, float64 inside, float32 outside."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch, SimulationError
from torch import Tensor

from envcoder_bench.core.cpus import usable_cpus
from envcoder_bench.isaacgym.engine import Engine
from envcoder_bench.isaacgym.layout import ActorPlace, Layout
from envcoder_bench.isaacgym.numerics import (
    dofs_above,
    drives,
    first_state,
    least_weights,
    mass_addresses,
    principal_axes,
)
from envcoder_bench.isaacgym.params import DOF_MODE_POS, DOF_MODE_VEL
from envcoder_bench.isaacgym.transforms import pose_array
from envcoder_bench.sim.mujoco_log import collected
from envcoder_bench.sim.poses import PoseSource

_MAX_POSITION = 1e4  # m, rad; beyond is a blow-up
_MAX_COMMAND = 1e10  # MuJoCo drops all commands of a simulation if one is larger
_VEL = int(mujoco.mjtStage.mjSTAGE_VEL)


class CpuEngine(Engine):
    """``num_envs`` copies of a layout in one batch."""

    def __init__(self, layout: Layout, poses: np.ndarray, num_threads: int | None = None) -> None:
        """Start all environments with the actors' ``poses``, ``(num_envs, actors, 7)``, quaternions wxyz."""
        model = layout.model
        self._layout, self.device, self.blow_ups = layout, torch.device("cpu"), 0
        self.num_envs, self.num_actors = poses.shape[:2]
        self.num_bodies, self.num_dofs = len(layout.bodies), len(layout.dof_qpos)
        self.position_targets = torch.zeros(self.num_envs, self.num_dofs)
        self.velocity_targets = torch.zeros(self.num_envs, self.num_dofs)
        self.efforts = torch.zeros(self.num_envs, self.num_dofs)
        self.forces = torch.zeros(self.num_envs, self.num_bodies, 6)
        self.blown = torch.zeros(self.num_envs, dtype=torch.bool)
        self.dof_actors = torch.from_numpy(layout.dof_actors)

        self._batch = batch = Batch(model, self.num_envs, num_threads or usable_cpus())
        batch.warning[:, :, 1] = 1  # MuJoCo prints a counted warning where its count was 0
        self._qpos, self._qvel, self._warmstart = (batch.bind(n) for n in ("qpos", "qvel", "qacc_warmstart"))
        self._ctrl, self._xfrc = batch.bind("ctrl"), batch.bind("xfrc_applied")
        self._mocap = (batch.bind("mocap_pos"), batch.bind("mocap_quat")) if model.nmocap else None
        names = ("xpos", "xquat", "xipos", "cvel", "subtree_com", "sensordata", "qfrc_actuator")
        self._xpos, self._xquat, self._xipos, self._cvel, self._com, self._sensordata, self._qfrc = (
            batch.bind(name) for name in names
        )
        self._gain, self._bias = batch.expand("actuator_gainprm"), batch.expand("actuator_biasprm")
        self._force_range = batch.expand("actuator_forcerange")
        self._stiffness, self._damping = batch.expand("jnt_stiffness"), batch.expand("dof_damping")
        self._armature, self._range = batch.expand("dof_armature"), batch.expand("jnt_range")
        self._gravity = batch.expand("opt.gravity")
        self._least_weights = least_weights(model)
        self._outputs: dict[str, np.ndarray] = {}
        self._constants_changed = True  # the armature counts in them

        self._drive = {name: np.zeros((self.num_envs, self.num_dofs)) for name in ("driveMode", "stiffness", "damping")}
        self._max_velocity = np.full((self.num_envs, self.num_dofs), np.inf)
        self._ipos = np.broadcast_to(model.body_ipos, (self.num_envs, *model.body_ipos.shape))
        self._mass = np.broadcast_to(model.body_mass, (self.num_envs, model.nbody))
        self._inertia = np.broadcast_to(model.body_inertia, (self.num_envs, model.nbody, 3))
        self._iquat = np.broadcast_to(model.body_iquat, (self.num_envs, model.nbody, 4))
        self._sensor_frames = [(layout.bodies[body], pose_array(pose)) for body, pose in layout.sensors]
        qpos, mocap_pos, mocap_quat = first_state(layout, poses)
        self._qpos[...] = qpos
        if self._mocap is not None:
            self._mocap[0][...], self._mocap[1][...] = mocap_pos, mocap_quat
        self._first_state = batch.state.copy()
        batch.forward(stage=_VEL)
        self._stepped = batch.state.copy()
        self._contact = np.zeros((self.num_envs, self.num_bodies, 3))
        self._force = np.zeros((self.num_envs, self.num_dofs))
        self._accelerations, self._sensor = (np.zeros((self.num_envs, len(layout.sensors), 6)) for _ in "12")

    def pose_source(self) -> PoseSource:
        """Return the live poses of all environments, for pictures."""
        return PoseSource(self._layout.model, self._qpos, self._mocap)

    def set_dof_properties(self, env: int | None, dofs: slice, properties: np.ndarray) -> None:
        rows = slice(None) if env is None else env
        joints, qvel = self._layout.dof_joint[dofs], self._layout.dof_qvel[dofs]
        new = drives(properties)
        for name in self._drive:
            self._drive[name][rows, dofs] = properties[name]
        self._bias[rows, dofs, 1], self._bias[rows, dofs, 2] = new.bias_position, new.bias_velocity
        self._force_range[rows, dofs] = np.stack([-new.force_limit, new.force_limit], axis=-1)
        for field, ids, values in ((self._stiffness, joints, new.spring), (self._damping, qvel, new.damper)):
            linear = field if field.ndim == 2 else field[..., 0]
            linear[rows, ids] = values
        self._armature[rows, qvel] = new.armature
        self._range[rows, joints] = np.stack([new.lower, new.upper], axis=-1)
        self._max_velocity[rows, dofs] = new.max_velocity
        self._constants_changed = True

    def set_body_mass(self, env: int, body: int, mass: float, com: np.ndarray, inertia: np.ndarray) -> None:
        if not self._mass.flags.writeable:
            self._mass, self._inertia = self._batch.expand("body_mass"), self._batch.expand("body_inertia")
            self._ipos, self._iquat = self._batch.expand("body_ipos"), self._batch.expand("body_iquat")
        b = self._layout.bodies[body]
        self._mass[env, b], self._ipos[env, b] = mass, com
        self._inertia[env, b], self._iquat[env, b] = principal_axes(inertia)
        self._constants_changed = True

    def set_friction(self, env: int, actor: int, friction: np.ndarray) -> None:
        self._batch.expand("geom_friction")[env, self._layout.geoms(actor), 0] = friction

    def set_model_fields(self, env: int, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        for name, (ids, values) in fields.items():
            rows = self._batch.expand(name)
            rows[env, ids] = np.reshape(values, rows[env, ids].shape)
            self._constants_changed |= name in mujoco.MjModel._setconst_inputs

    def set_gravity(self, gravity: np.ndarray) -> None:
        self._gravity[...] = gravity
        self._constants_changed = True

    def step(self) -> None:
        if self._constants_changed:
            self._batch.set_const()
            weights = self._batch.expand("body_invweight0")
            np.maximum(weights[:, :, 0], self._least_weights * weights[:, :, 1], out=weights[:, :, 0])
            self._constants_changed = False
        mode, stiffness, damping = self._drive.values()
        position, velocity = self.position_targets.numpy(), self.velocity_targets.numpy()
        command = np.where(mode == DOF_MODE_POS, stiffness * position + damping * velocity, self.efforts.numpy())
        command = np.where(mode == DOF_MODE_VEL, damping * velocity, command)
        bad = np.array(~np.isfinite(command).all(axis=1) | ~np.isfinite(self.forces.numpy()).all(axis=(1, 2)))
        self._ctrl[...] = np.clip(np.where(bad[:, None], 0.0, command), -_MAX_COMMAND, _MAX_COMMAND)
        self._xfrc[:, self._layout.bodies] = np.where(bad[:, None, None], 0.0, self.forces.numpy())
        with np.errstate(over="ignore", invalid="ignore"), collected():
            clamped = np.zeros(self.num_envs, dtype=bool)
            for substep in range(self._layout.substeps):
                last = substep == self._layout.substeps - 1
                try:
                    self._batch.step(stage=_VEL if last else 0)
                except SimulationError as error:  # the others ran to completion
                    bad[error.ids] = True
                if last:
                    self._collect()
                clamped = self._limit_velocities()
            bad |= ~((np.abs(self._qpos) <= _MAX_POSITION).all(axis=1) & np.isfinite(self._qvel).all(axis=1))
            if bad.any():
                self._batch.state[bad] = self._first_state[bad]
                self._contact[bad], self._force[bad] = 0.0, 0.0
                self.blow_ups += int(bad.sum())
            self.blown.copy_(torch.from_numpy(bad))
            late = np.flatnonzero(clamped | bad)
            if late.size:  # their derived numbers are those of before
                self._batch.forward(ids=late, stage=_VEL)
            self._read_sensors(bad)
        self._stepped = self._batch.state.copy()
        self.efforts.zero_()
        self.forces.zero_()

    def _collect(self) -> None:
        """Keep what only a step computes: contacts, drive forces, accelerations."""
        contacts = 3 * self.num_bodies
        self._contact[...] = -self._sensordata[:, :contacts].reshape(self._contact.shape)
        self._force[...] = self._qfrc[:, self._layout.dof_qvel]
        self._accelerations[...] = self._sensordata[:, contacts:].reshape(self._accelerations.shape)
        self._accelerations[:, :, :3] += self._gravity[:, None]

    def _read_sensors(self, blown: np.ndarray) -> None:
        """Turn accelerations of the last substep and the state at its end into the sensors' forces and torques."""
        for number, (body, frame) in enumerate(self._sensor_frames):
            force = self._mass[:, body, None] * self._accelerations[:, number, :3]
            turn = _matrices(_multiply(self._xquat[:, body], self._iquat[:, body]))  # principal axes
            spin = np.einsum("nji,nj->ni", turn, self._cvel[:, body, :3])
            change = np.einsum("nji,nj->ni", turn, self._accelerations[:, number, 3:])
            inertia = self._inertia[:, body]
            torque = np.einsum("nij,nj->ni", turn, inertia * change + np.cross(spin, inertia * spin))
            pose = _matrices(self._xquat[:, body])
            origin = self._xpos[:, body] + pose @ frame[:3]
            torque += np.cross(self._xipos[:, body] - origin, force)
            axes = pose @ _matrices(frame[None, 3:])[0]
            self._sensor[:, number, :3] = np.einsum("nji,nj->ni", axes, force)
            self._sensor[:, number, 3:] = np.einsum("nji,nj->ni", axes, torque)
        self._sensor[blown] = 0.0

    def _limit_velocities(self) -> np.ndarray:
        """Apply velocity limits; tell which environments they changed."""
        layout, columns = self._layout, self._layout.dof_qvel
        joint = self._qvel[:, columns]
        limited = np.clip(joint, -self._max_velocity, self._max_velocity)
        changed = (limited != joint).any(axis=1)
        if changed.any():
            self._qvel[:, columns] = limited
        for place, limits in zip(layout.places, layout.max_velocity):
            if place.fixed:
                continue
            for first, limit in zip((place.qvel, place.qvel + 3), limits):
                part = self._qvel[:, first : first + 3]
                speed = np.sqrt((part * part).sum(axis=1))
                fast = speed > limit
                if fast.any():
                    part[fast] *= (limit / speed[fast])[:, None]
                    changed |= fast
        return changed

    def write_roots_masked(self, mask: Tensor, states: Tensor) -> None:
        written = mask.numpy().reshape(self.num_envs, self.num_actors)
        values = states.detach().numpy().reshape(self.num_envs, self.num_actors, 13)
        for k, place in enumerate(self._layout.places):
            ids = np.flatnonzero(written[:, k])
            if ids.size == 0:
                continue
            state = values[ids, k].astype(float)
            self._put(ids, place, np.concatenate([state[:, :3], state[:, [6, 3, 4, 5]]], axis=1))
            if not place.fixed:
                turn, spin = _matrices(self._qpos[ids, place.qpos + 3 : place.qpos + 7]), state[:, 10:13]
                arm = np.einsum("nij,nj->ni", turn, self._ipos[ids, place.root])
                self._qvel[ids, place.qvel : place.qvel + 3] = state[:, 7:10] - np.cross(spin, arm)
                self._qvel[ids, place.qvel + 3 : place.qvel + 6] = np.einsum("nji,nj->ni", turn, spin)
        self._warmstart[written.any(axis=1)] = 0.0

    def _put(self, ids: np.ndarray, place: ActorPlace, pose: np.ndarray) -> None:
        """Place a root in some environments by position and quaternion wxyz, ``(n, 7)``."""
        norm = np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
        quat = np.where(norm > 1e-9, pose[:, 3:] / np.maximum(norm, 1e-9), [1.0, 0.0, 0.0, 0.0])
        if place.fixed and self._mocap is not None:
            self._mocap[0][ids, place.mocap], self._mocap[1][ids, place.mocap] = pose[:, :3], quat
        else:
            self._qpos[ids, place.qpos : place.qpos + 3] = pose[:, :3]
            self._qpos[ids, place.qpos + 3 : place.qpos + 7] = quat

    def write_dofs_masked(self, mask: Tensor, states: Tensor) -> None:
        written = mask.numpy().reshape(self.num_envs, self.num_actors)
        values = states.detach().numpy().reshape(self.num_envs, self.num_dofs, 2)
        for k, place in enumerate(self._layout.places):
            ids = np.flatnonzero(written[:, k])
            if ids.size and place.dofs.stop > place.dofs.start:
                self._qpos[ids[:, None], self._layout.dof_qpos[place.dofs]] = values[ids, place.dofs, 0]
                self._qvel[ids[:, None], self._layout.dof_qvel[place.dofs]] = values[ids, place.dofs, 1]
        self._warmstart[written.any(axis=1)] = 0.0

    def read_roots(self, out: Tensor) -> None:
        states = out.numpy().reshape(self.num_envs, self.num_actors, 13)
        for k, place in enumerate(self._layout.places):
            if place.fixed and self._mocap is not None:
                position, quat = self._mocap[0][:, place.mocap], self._mocap[1][:, place.mocap]
                states[:, k, 7:] = 0.0
            else:
                position = self._qpos[:, place.qpos : place.qpos + 3]
                quat = self._qpos[:, place.qpos + 3 : place.qpos + 7]
                turn = _matrices(quat)
                spin = np.einsum("nij,nj->ni", turn, self._qvel[:, place.qvel + 3 : place.qvel + 6])
                arm = np.einsum("nij,nj->ni", turn, self._ipos[:, place.root])
                states[:, k, 7:10] = self._qvel[:, place.qvel : place.qvel + 3] + np.cross(spin, arm)
                states[:, k, 10:13] = spin
            states[:, k, :3], states[:, k, 3:7] = position, quat[:, [1, 2, 3, 0]]

    def read_dofs(self, out: Tensor) -> None:
        states = out.numpy().reshape(self.num_envs, self.num_dofs, 2)
        states[..., 0] = self._qpos[:, self._layout.dof_qpos]
        states[..., 1] = self._qvel[:, self._layout.dof_qvel]

    def read_bodies(self, out: Tensor) -> None:
        states, ids = out.numpy().reshape(self.num_envs, self.num_bodies, 13), self._layout.bodies
        states[..., 0:3] = self._xpos[:, ids]
        states[..., 3:7] = self._xquat[:, ids][..., [1, 2, 3, 0]]
        spin = self._cvel[:, ids, :3]
        arm = self._xipos[:, ids] - self._com[:, self._layout.model.body_rootid[ids]]
        states[..., 7:10] = self._cvel[:, ids, 3:] + np.cross(spin, arm)
        states[..., 10:13] = spin

    def read_contact_forces(self, out: Tensor) -> None:
        out.numpy()[...] = self._contact.reshape(-1, 3)

    def read_dof_forces(self, out: Tensor) -> None:
        out.numpy()[...] = self._force.reshape(-1)

    def read_force_sensors(self, out: Tensor) -> None:
        out.numpy()[...] = self._sensor.reshape(-1, 6)

    def _kept(self) -> dict[str, np.ndarray]:
        """What a step and the readers depend on, beside the state of the last step: all of it is written in place."""
        last = {"state": self._batch.state, "contact": self._contact, "force": self._force, "sensor": self._sensor}
        own = ("position_targets", "velocity_targets", "efforts", "forces", "blown")
        return {**last, **{name: getattr(self, name).numpy() for name in own}}

    def get_state(self) -> dict[str, Tensor]:
        kept = {name: torch.from_numpy(np.array(x)) for name, x in {**self._kept(), "stepped": self._stepped}.items()}
        return {**kept, "blow_ups": torch.tensor(self.blow_ups)}

    def set_state(self, state: dict[str, Tensor]) -> None:
        # poses and velocities of bodies are those of the last step, whatever was written since
        self._stepped = state["stepped"].numpy().copy()
        self._batch.state[...] = self._stepped
        self._batch.forward(stage=_VEL)
        for name, x in self._kept().items():
            x[...] = state[name].numpy()
        self.blow_ups = int(state["blow_ups"])

    def _bound(self, name: str) -> np.ndarray:
        """Return an output that only some tasks read; it is copied out from the first call on."""
        if name not in self._outputs:
            self._outputs[name] = self._batch.bind(name)
            self._batch.forward(stage=_VEL)
        return self._outputs[name]

    def read_jacobian(self, actor: int, out: Tensor) -> None:
        """Each DOF's motion is bound as a spatial velocity about the tree's centre of mass, as ``cvel`` is."""
        model, place = self._layout.model, self._layout.places[actor]
        motion = self._bound("cdof")
        columns = self._layout.dof_qvel[place.dofs]
        first = place.bodies.start + int(place.fixed)
        for row, body in enumerate(self._layout.bodies[first : place.bodies.stop]):
            moved = np.isin(columns, dofs_above(model, int(body)))
            arm = self._xipos[:, body] - self._com[:, model.body_rootid[body]]
            spin = motion[:, columns, :3] * moved[:, None]
            linear = motion[:, columns, 3:] * moved[:, None] + np.cross(spin, arm[:, None])
            out.numpy()[:, row, :3] = linear.transpose(0, 2, 1)
            out.numpy()[:, row, 3:] = spin.transpose(0, 2, 1)

    def read_mass_matrix(self, actor: int, out: Tensor) -> None:
        model, place = self._layout.model, self._layout.places[actor]
        values = self._bound("M")
        addresses = mass_addresses(model, self._layout.dof_qvel[place.dofs])
        out.numpy()[...] = np.where(addresses >= 0, values[:, addresses], 0.0)


def _matrices(quat: np.ndarray) -> np.ndarray:
    """Rotation matrices ``(n, 3, 3)`` of quaternions wxyz ``(n, 4)``; zero does not rotate."""
    w, x, y, z = quat.T
    norm = w * w + x * x + y * y + z * z
    s = 2.0 / np.maximum(norm, 1e-30) * (norm > 0)
    rows = [
        [1 - s * (y * y + z * z), s * (x * y - z * w), s * (x * z + y * w)],
        [s * (x * y + z * w), 1 - s * (x * x + z * z), s * (y * z - x * w)],
        [s * (x * z - y * w), s * (y * z + x * w), 1 - s * (x * x + y * y)],
    ]
    return np.array(rows).transpose(2, 0, 1)


def _multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of quaternions wxyz ``(n, 4)``."""
    aw, ax, ay, az = a.T
    bw, bx, by, bz = b.T
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=1,
    )
