"""The CPU engine: ``mujoco.batch``, float64 inside, float32 outside."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import logging

import mujoco
import numpy as np
import torch
from torch import Tensor

from mujoco_batches.engine.base import Engine
from mujoco_batches.engine.cpu_properties import CpuProperties
from mujoco_batches.engine.layout import ActorPlace, Layout
from mujoco_batches.engine.numerics import consecutive, first_state, position_limits
from mujoco_batches.physics.batch import MAX_COMMAND, collected, make_batch, step_batch, take_overflows
from mujoco_batches.physics.live_tensors import PoseSource
from mujoco_batches.physics.models import mass_addresses
from mujoco_batches.physics.rotations import cross, quat_multiply, rotation_matrices, rotation_rows
from mujoco_batches.scene.params import DOF_MODE_POS, DOF_MODE_VEL
from mujoco_batches.scene.transforms import pose_array

logger = logging.getLogger("mujoco_batches")
_FLOAT = np.float32
_VEL = int(mujoco.mjtStage.mjSTAGE_VEL)
_BITS = mujoco.mjtDisableBit
_START = ("xpos", "xquat", "xipos", "cvel", "subtree_com", "cfrc_int")
_NO_SENSORS = int(_BITS.mjDSBL_SENSOR)
_POSES_ALONE = int(_BITS.mjDSBL_CONTACT) | int(_BITS.mjDSBL_CONSTRAINT) | _NO_SENSORS
_WORTH_REPEATING = 10  # steps whose left-out forces cost as much as repeating one (Anymal, Ant: nine)


class CpuEngine(Engine):
    """``num_envs`` copies of a layout in one batch."""

    def __init__(self, layout: Layout, poses: np.ndarray, num_threads: int | None = None) -> None:
        """Start all environments with the actors' ``poses``, ``(num_envs, actors, 7)``, quaternions wxyz."""
        super().__init__(layout, poses, torch.device("cpu"))
        model, self.blow_ups, self._warned = layout.model, 0, False
        self._batch = batch = make_batch(model, self.num_envs, num_threads)
        self._qpos, self._qvel, self._warmstart = (batch.bind(n) for n in ("qpos", "qvel", "qacc_warmstart"))
        self._ctrl, self._xfrc, self._applied = (batch.bind(n) for n in ("ctrl", "xfrc_applied", "qfrc_applied"))
        self._mocap_pos, self._mocap_quat = batch.bind("mocap_pos"), batch.bind("mocap_quat")
        self._properties = CpuProperties(batch, layout, self.num_envs)

        names = ("xpos", "xquat", "xipos", "cvel", "subtree_com")
        self._xpos, self._xquat, self._xipos, self._cvel, self._com = (batch.bind(name) for name in names)
        # outputs of a step: net contact forces and drive forces of the last substep, force and torque of the sensors;
        # until someone reads them, a step leaves them out, and keeps the state with which it can be repeated
        self._watched = self._left_out = False
        self._steps_left_out = 0  # since the last one that was repeated
        self._before = np.empty_like(batch.state)
        self._damps_links = bool(layout.link_damping.any())
        self._bodies = consecutive(layout.bodies)
        self._dof_qpos, self._dof_qvel = consecutive(layout.dof_qpos), consecutive(layout.dof_qvel)
        self._loaded = True  # whether the batch's forces on bodies may not be zero
        self._lazy: dict[str, np.ndarray] = {}
        self._contacts = np.zeros((self.num_envs, self.num_bodies, 3))
        self._dof_forces = np.zeros((self.num_envs, self.num_dofs))
        self._sensors = np.zeros((self.num_envs, len(layout.sensors), 6))
        self._accelerations = np.zeros_like(self._sensors)
        self._wrenches = np.zeros_like(self._sensors)  # contact wrenches about the centre of mass; 0 where not needed
        sizes = [wanted.size for wanted in layout.contact_lists]
        self._list_starts = np.cumsum([0, *sizes])
        self._contact_lists = np.zeros((self.num_envs, sum(sizes)))
        self._net_lists = _net_lists(layout, self._list_starts)
        # joint wrenches and accelerations are computed where someone reads them, of arrays of the last substep's start
        self.keeps_velocities = layout.joint_wrenches
        bodies = self.num_bodies if self.keeps_velocities else 0
        self._joint_wrenches, self._body_accelerations = (np.zeros((self.num_envs, bodies, 6)) for _ in range(2))
        self._start: dict[str, np.ndarray] = {}
        self._undamped: Tensor | None = None  # roots before the last substep has damped them

        # the state at the beginning, to which failed environments return
        self._position_limits = position_limits(model)
        self._least_position_limit = self._position_limits.min(initial=np.inf)
        self._least_root_limit = min((limit for limits in layout.max_velocity for limit in limits), default=np.inf)
        self._dropped = np.zeros(self.num_envs, dtype=bool)
        self._qpos[...], self._mocap_pos[...], self._mocap_quat[...] = first_state(layout, poses)
        self._first_state = batch.state.copy()
        # the state whose bodies readers get, that of the arrays, and that at the end of the last step
        self._stepped = self._last = batch.state.copy()
        self._kept = True  # whether ``_last`` has been copied; it is not before a write or a reader needs it
        self._arrays_of: np.ndarray | None = None
        self._unread: set[str] = set()  # of the last step: "sensors", "wrenches", "accelerations"
        self._derive()

    def pose_source(self) -> PoseSource:
        """Return the live poses of all environments, for pictures."""
        model = self._layout.model
        return PoseSource(model, self._qpos, (self._mocap_pos, self._mocap_quat) if model.nmocap else None)

    def _before_change(self) -> None:
        self._finish(often=True)
        self._derive()

    def step(self) -> None:
        self._properties.flush()
        loads = None
        with np.errstate(over="ignore", invalid="ignore"), collected():
            bad, fastest = self._load_commands(), np.inf
            if self._damps_links:
                loads = self._xfrc[:, self._layout.bodies]
            for substep in range(self._layout.substeps):
                if self._properties.steadied:
                    self._steady()
                last = substep == self._layout.substeps - 1
                if last and self.keeps_velocities and np.any(self._layout.root_damping):
                    self._undamped = self.tensor("roots")
                self._damp_roots()
                if loads is not None:
                    self._compute_poses()
                    self._xfrc[:, self._layout.bodies] = loads + self._link_damping_forces()
                if last and not self._watched:
                    self._before[...] = self._batch.state
                bad[step_batch(self._batch)] = True
                if last and self._watched:
                    self._collect()
                fastest = self._limit_velocities()
            # failed environments go on in their first state
            if not (largest(self._qpos) <= self._least_position_limit and fastest < np.inf):
                inside = (np.abs(self._qpos) <= self._position_limits).all(axis=1)
                bad |= ~(inside & np.isfinite(self._qvel).all(axis=1))
            self.blown.copy_(torch.from_numpy(bad))
            self._dropped |= take_overflows(self._batch) & ~bad
            if bad.any():
                self._batch.state[bad] = self._first_state[bad]
                self.blow_ups += int(bad.sum())
                self._clear(bad)
        # efforts and forces act in one step, and readers get the state at its end
        self._stepped, self._kept, self._left_out = self._last, False, not self._watched
        self._steps_left_out += self._left_out
        self._arrays_of, self._start = None, {}
        self._unread = {"sensors", "wrenches", "accelerations"}
        self.efforts.zero_()
        self.forces.zero_()

    def _keep_last(self) -> None:
        """Copy the state at the end of the last step, before a write or a reader."""
        if not self._kept:
            self._kept, self._last[...] = True, self._batch.state

    def _clear(self, bad: np.ndarray) -> None:
        self._contacts[bad], self._dof_forces[bad], self._contact_lists[bad] = 0.0, 0.0, 0.0

    def _watch(self) -> None:
        """Let steps compute what only a substep computes from now on, and do so for the last one."""
        if not self._watched:
            self._watched = True
            self._properties.disable(0)
            for name in ("sensordata", "qfrc_actuator", *(("cfrc_int",) if self.keeps_velocities else ())):
                self._batch.bind(name)
        if self._left_out:
            self._left_out = False
            present, warnings = self._batch.state.copy(), self._batch.warning.copy()
            self._batch.state[...] = self._before
            with np.errstate(over="ignore", invalid="ignore"), collected():
                step_batch(self._batch)
                self._collect()
            self._clear(self.blown.numpy())
            self._start, self._arrays_of = {}, None
            self._keep_start()
            self._batch.state[...], self._batch.warning[...] = present, warnings

    def take_overflows(self) -> Tensor:
        dropped, self._dropped = torch.from_numpy(self._dropped), np.zeros_like(self._dropped)
        return dropped

    def refresh(self) -> None:
        self._read_sensors()
        self._keep_last()
        self._properties.flush()
        self._stepped = self._batch.state.copy()

    def contacts(self, number: int) -> Tensor:
        self._watch()
        first, end = self._list_starts[number : number + 2]
        wanted = self._layout.contact_lists[number]
        values = self._contact_lists[:, first:end].reshape(self.num_envs, wanted.slots, -1, 3)
        if wanted.points:  # MuJoCo has the point before the normal
            values = values[:, :, [0, 2, 1, 3]]
        return torch.from_numpy(values.reshape(self.num_envs, wanted.slots, -1).astype(np.float32))

    def normal_forces(self) -> Tensor:
        self._watch()
        result = torch.zeros(self.num_envs, self.num_bodies, 3)
        for slots, (bodies, columns) in self._net_lists.items():
            values = torch.from_numpy(self._contact_lists[:, columns].astype(np.float32))
            contacts = values.view(self.num_envs, len(bodies), slots, 6)
            if not self._warned and (contacts[:, :, -1, 0] > 0).any():
                self._warned = True
                logger.warning("a body has %d contacts or more; the strongest of them are reported", slots)
            result[:, bodies] = -(contacts[..., :1] * contacts[..., 3:6]).sum(dim=-2)
        return result

    def joint_wrenches(self) -> Tensor:
        if "wrenches" in self._unread:
            self._watch()
            self._unread.discard("wrenches")
            self._keep_start()
            self._joint_wrenches[...] = self._read_joint_wrenches()
        return torch.from_numpy(self._joint_wrenches.astype(np.float32))

    def _read_joint_wrenches(self) -> np.ndarray:
        # by components, each in one piece: np.einsum and strided arrays take longer
        ids, start = self._bodies, self._start
        split = lambda x: np.ascontiguousarray(np.moveaxis(x, -1, 0))  # noqa: E731
        *torque, x, y, z = split(start["cfrc_int"][:, ids])
        a, b, c = split(start["xpos"][:, ids] - start["subtree_com"][:, self._layout.model.body_rootid[ids]])
        moment = [torque[0] - (b * z - c * y), torque[1] - (c * x - a * z), torque[2] - (a * y - b * x)]
        turn = rotation_rows(start["xquat"][:, ids])
        wrenches = np.empty((*x.shape, 6))
        for k, parts in ((0, (x, y, z)), (3, moment)):
            for i in range(3):
                first, second, third = (turn[j][i] * parts[j] for j in range(3))
                wrenches[..., k + i] = first + second + third
        return wrenches

    def accelerations(self) -> Tensor:
        if "accelerations" in self._unread:
            self._watch()
            self._unread.discard("accelerations")
            self._pose(self._last)
            before, after = (
                np.concatenate(self._body_velocities(start), axis=2).astype(np.float32) for start in (True, False)
            )
            if self._undamped is not None:
                roots = self._undamped.view(self.num_envs, -1, 13).numpy()
                for k, actor in enumerate(self._layout.places):
                    if any(self._layout.root_damping[k]):
                        before[:, actor.bodies.start] = roots[:, k, 7:]
            self._body_accelerations[...] = (after - before) / self._layout.model.opt.timestep
        return torch.from_numpy(self._body_accelerations.astype(np.float32))

    def _finish(self, often: bool = False) -> None:
        """Read all of the last step that readers may ask for later; the next steps may leave it out again.

        Args:
            often: whether this may happen in so many steps that leaving it out takes longer; then it ends.
        """
        watched = self._watched
        if self._left_out:
            if often:
                watched, self._steps_left_out = self._steps_left_out < _WORTH_REPEATING, 0
            self._watch()
        self._read_sensors()
        if self.keeps_velocities:
            self.joint_wrenches()
            self.accelerations()
        if not watched:
            self._watched = False
            self._properties.disable(_NO_SENSORS)

    def _keep_start(self) -> None:
        """Keep MuJoCo's arrays of the last substep, before they become those of another state."""
        if self.keeps_velocities and self._watched and not self._start and self._unread:
            self._start = {name: self._batch.bind(name).copy() for name in _START}

    def _derive(self) -> None:
        """Compute the poses of bodies that readers get, if no one has read them since the last step."""
        self._pose(self._stepped)

    def _pose(self, state: np.ndarray) -> None:
        """Let MuJoCo's arrays be those of a state."""
        self._keep_last()
        if self._arrays_of is state:
            return
        self._keep_start()
        present = self._batch.state.copy()  # it may have been set since
        self._batch.state[...] = state
        with np.errstate(over="ignore", invalid="ignore"), collected():
            self._compute_poses()
        self._batch.state[...] = present
        self._arrays_of = state

    def _compute_poses(self) -> None:
        """Compute poses and velocities of bodies, and what follows from them, without contacts and constraints."""
        self._properties.disable(_POSES_ALONE)
        try:
            self._batch.forward(stage=_VEL)
        finally:
            self._properties.disable(0 if self._watched else _NO_SENSORS)

    def _damp_roots(self) -> None:
        """Damp the velocities of free roots before a physics step, as PhysX: of the centre of mass, by 1 - rate h."""
        layout, qpos, qvel = self._layout, self._qpos, self._qvel
        for actor, rates in zip(layout.places, layout.root_damping):
            if not any(rates):
                continue
            linear, angular = (min(rate * layout.model.opt.timestep, 1.0) for rate in rates)
            velocity, spin = qvel[:, actor.qvel : actor.qvel + 3], qvel[:, actor.qvel + 3 : actor.qvel + 6]
            arm = self._properties.ipos[:, actor.root]
            if linear != angular and arm.any():  # qvel has the velocity of the root's origin
                turn = rotation_matrices(qpos[:, actor.qpos + 3 : actor.qpos + 7])
                moved = (angular - linear) * np.einsum("nij,nj->ni", turn, cross(spin, arm))
                velocity[...] = (1.0 - linear) * velocity + moved
            else:
                velocity *= 1.0 - linear
            spin *= 1.0 - angular

    def _limit_velocities(self) -> float:
        """Apply velocity limits; joints have moved with the velocities of the physics step, and move back.

        Return the largest velocity, or inf if some may be limited or not finite.
        """
        layout, qpos, qvel = self._layout, self._qpos, self._qvel
        fastest = largest(qvel)  # 2: more than the root of 3, by which a speed exceeds its components
        if 2.0 * fastest <= min(self._properties.least_max_velocity, self._least_root_limit) and fastest < np.inf:
            return fastest
        columns = layout.dof_qvel
        joint, max_velocity = qvel[:, columns], self._properties.max_velocity
        if (np.abs(joint) > max_velocity).any():
            limited = np.clip(joint, -max_velocity, max_velocity)
            qpos[:, layout.dof_qpos] -= layout.model.opt.timestep * (joint - limited)
            qvel[:, columns] = limited
        for actor, limits in zip(layout.places, layout.max_velocity):
            if actor.fixed:
                continue
            for first, limit in zip((actor.qvel, actor.qvel + 3), limits):
                part = qvel[:, first : first + 3]
                speed = np.sqrt((part * part).sum(axis=1))
                fast = speed > limit
                if fast.any():
                    part[fast] *= (limit / speed[fast])[:, None]
        return np.inf

    def _load_commands(self) -> np.ndarray:
        """Load commands and forces; return where they are not finite, ``(num_envs,)`` bool: these get none."""
        drives = self._properties
        position, velocity = self.position_targets.numpy(), self.velocity_targets.numpy()
        damped, forces = drives.damping * velocity, self.forces.numpy()
        command = drives.stiffness * position + damped
        if not drives.positional:
            command = np.where(drives.mode == DOF_MODE_POS, command, self.efforts.numpy())
            command = np.where(drives.mode == DOF_MODE_VEL, damped, command)
        bad, loaded = np.zeros(self.num_envs, dtype=bool), bool(forces.any())
        if not np.isfinite(command.sum()):
            bad |= ~np.isfinite(command).all(axis=1)
        if loaded:
            bad |= ~np.isfinite(forces).all(axis=(1, 2))
        np.clip(command, -MAX_COMMAND, MAX_COMMAND, out=self._ctrl)
        if bad.any():
            self._ctrl[bad] = 0.0
        if loaded or self._loaded:
            self._xfrc[:, self._layout.bodies] = np.where(bad[:, None, None], 0.0, forces)
        self._loaded = loaded or self._damps_links
        if self.joint_forces is not None:
            extra, applied = self.joint_forces.numpy(), self._applied
            if not np.isfinite(extra.sum(dtype=float)):
                bad |= ~np.isfinite(extra).all(axis=1)
            applied[:, self._dof_qvel] = extra
            if bad.any():
                applied[bad] = 0.0
        return bad

    def _steady(self) -> None:
        """Damp joints whose drives need it; a target that is not finite moves nothing."""
        error = self.position_targets.numpy() - self._qpos[:, self._layout.dof_qpos]
        error = np.nan_to_num(error, posinf=0.0, neginf=0.0)
        target = np.nan_to_num(self.velocity_targets.numpy(), posinf=0.0, neginf=0.0)
        self._properties.steady(error, self._qvel[:, self._layout.dof_qvel], target)

    def actor_mask(self, rows: Tensor) -> Tensor:
        mask, numbers = np.zeros((self.num_envs, self.num_actors), dtype=bool), rows.numpy()
        mask.reshape(-1)[numbers[(numbers >= 0) & (numbers < mask.size)]] = True
        return torch.from_numpy(mask)

    def write_roots(self, mask: Tensor | None, states: Tensor) -> None:
        self._keep_last()
        written = (self._all_actors() if mask is None else mask).numpy().reshape(self.num_envs, self.num_actors)
        values = states.detach().numpy().reshape(self.num_envs, self.num_actors, 13)
        for k, actor in enumerate(self._layout.places):
            ids = np.flatnonzero(written[:, k])
            if ids.size == 0:
                continue
            state = values[ids, k].astype(float)
            quat = state[:, [6, 3, 4, 5]]
            norm = np.linalg.norm(quat, axis=1, keepdims=True)
            quat = np.where(norm > 1e-9, quat / np.maximum(norm, 1e-9), [1.0, 0.0, 0.0, 0.0])
            if actor.fixed:
                self._mocap_pos[ids, actor.mocap], self._mocap_quat[ids, actor.mocap] = state[:, :3], quat
            else:
                self._qpos[ids, actor.qpos : actor.qpos + 3] = state[:, :3]
                self._qpos[ids, actor.qpos + 3 : actor.qpos + 7] = quat
                turn, spin = rotation_matrices(quat), state[:, 10:13]
                arm = np.einsum("nij,nj->ni", turn, self._properties.ipos[ids, actor.root])
                self._qvel[ids, actor.qvel : actor.qvel + 3] = state[:, 7:10] - cross(spin, arm)
                self._qvel[ids, actor.qvel + 3 : actor.qvel + 6] = np.einsum("nji,nj->ni", turn, spin)
        self._warmstart[written.any(axis=1)] = 0.0

    def write_dofs(self, mask: Tensor | None, states: Tensor) -> None:
        self._keep_last()
        written = (self._all_actors() if mask is None else mask).numpy().reshape(self.num_envs, self.num_actors)
        values = states.detach().numpy().reshape(self.num_envs, self.num_dofs, 2)
        for k, actor in enumerate(self._layout.places):
            ids = np.flatnonzero(written[:, k])
            if ids.size and actor.dofs.stop > actor.dofs.start:
                self._qpos[ids[:, None], self._layout.dof_qpos[actor.dofs]] = values[ids, actor.dofs, 0]
                self._qvel[ids[:, None], self._layout.dof_qvel[actor.dofs]] = values[ids, actor.dofs, 1]
        self._warmstart[written.any(axis=1)] = 0.0

    def read(self, quantity: str, out: Tensor, actor: int = -1) -> None:
        n, values = self.num_envs, out.detach().numpy()
        # positions of bodies follow from the joints: computed where they are read
        if quantity == "force_sensors":
            self._read_sensors()
        elif quantity in ("contact_forces", "dof_forces"):
            self._watch()
        elif quantity not in ("roots", "dofs"):
            self._derive()
        match quantity:
            case "roots":
                for k, place in enumerate(self._layout.places):
                    states = values.reshape(n, self.num_actors, 13)[:, k]
                    self._read_root_poses(place, states[:, :7])
                    self._read_root_velocities(place, states[:, 7:])
            case "dofs":
                states = values.reshape(n, self.num_dofs, 2)
                states[..., 0] = self._qpos[:, self._dof_qpos]
                states[..., 1] = self._qvel[:, self._dof_qvel]
            case "bodies":
                states, ids = values.reshape(n, self.num_bodies, 13), self._layout.bodies
                states[..., 0:3] = self._xpos[:, ids]
                states[..., 3:7] = self._xquat[:, ids][..., [1, 2, 3, 0]]
                states[..., 7:10], states[..., 10:13] = self._body_velocities()
            case "centres":
                values[...] = self._xipos[:, self._layout.bodies].reshape(values.shape)
            case "jacobian":
                self._read_jacobian(actor, values)
            case "mass_matrix":
                self._read_mass_matrix(actor, values)
            case _:
                held = {"contact_forces": self._contacts, "dof_forces": self._dof_forces}
                values[...] = held.get(quantity, self._sensors).reshape(values.shape)

    def root_poses(self, actor: int) -> Tensor:
        return torch.from_numpy(self._read_root_poses(self._layout.places[actor], np.empty((self.num_envs, 7), _FLOAT)))

    def root_velocities(self, actor: int) -> Tensor:
        states = np.empty((self.num_envs, 6), _FLOAT)
        return torch.from_numpy(self._read_root_velocities(self._layout.places[actor], states))

    def dof_states(self, part: int) -> Tensor:
        values = self._qvel[:, self._dof_qvel] if part else self._qpos[:, self._dof_qpos]
        return torch.from_numpy(values.astype(_FLOAT, order="C"))

    def _read_root_poses(self, actor: ActorPlace, states: np.ndarray) -> np.ndarray:
        """Fill and return ``(num_envs, 7)``."""
        if actor.fixed:
            position, quat = self._mocap_pos[:, actor.mocap], self._mocap_quat[:, actor.mocap]
        else:
            position = self._qpos[:, actor.qpos : actor.qpos + 3]
            quat = self._qpos[:, actor.qpos + 3 : actor.qpos + 7]
        states[:, :3], states[:, 3:6], states[:, 6] = position, quat[:, 1:], quat[:, 0]
        return states

    def _read_root_velocities(self, actor: ActorPlace, states: np.ndarray) -> np.ndarray:
        """Fill and return ``(num_envs, 6)``."""
        if actor.fixed:
            states[...] = 0.0
        else:
            turn = rotation_matrices(self._qpos[:, actor.qpos + 3 : actor.qpos + 7])
            spin = np.einsum("nij,nj->ni", turn, self._qvel[:, actor.qvel + 3 : actor.qvel + 6])
            arm = np.einsum("nij,nj->ni", turn, self._properties.ipos[:, actor.root])
            states[:, :3] = self._qvel[:, actor.qvel : actor.qvel + 3] + cross(spin, arm)
            states[:, 3:] = spin
        return states

    def _collect(self) -> None:
        """Copy what only a substep computes: contacts, drive forces, accelerations, contact wrenches."""
        contacts, accelerated = self._contacts[0].size, self._accelerations[0].size
        sensordata = self._batch.bind("sensordata")
        np.negative(sensordata[:, :contacts].reshape(self._contacts.shape), out=self._contacts)
        self._dof_forces[...] = self._batch.bind("qfrc_actuator")[:, self._dof_qvel]
        lists = sensordata.shape[1] - self._contact_lists.shape[1]
        self._contact_lists[...] = sensordata[:, lists:]
        end = lists - 3 * self._layout.joint_wrenches
        if not self._layout.sensors:
            return
        accelerations, wrenches = np.split(sensordata[:, contacts:end], [accelerated], axis=1)
        self._accelerations[...] = accelerations.reshape(self._accelerations.shape)
        self._accelerations[:, :, :3] += self._properties.gravity[:, None]
        numbers = self._layout.contact_sensors
        if numbers:
            force, torque, point = np.split(wrenches.reshape(self.num_envs, len(numbers), 9), 3, axis=2)
            centres = self._xipos[:, self._layout.bodies[[self._layout.sensors[k].body for k in numbers]]]
            # MuJoCo reports what the body exerts
            self._wrenches[:, numbers] = np.concatenate([-force, -torque - cross(point - centres, force)], axis=2)

    def _read_sensors(self) -> None:
        """Compute forces and torques of the sensors from the last accelerations and the state at the end of a step."""
        if "sensors" not in self._unread or not self._layout.sensors:
            return
        self._watch()
        self._unread.discard("sensors")
        self._pose(self._last)
        properties = self._properties
        for number, sensor in enumerate(self._layout.sensors):
            body, frame = self._layout.bodies[sensor.body], pose_array(sensor.pose)
            force = properties.mass[:, body, None] * self._accelerations[:, number, :3]
            turn = rotation_matrices(quat_multiply(self._xquat[:, body], properties.iquat[:, body]))  # principal axes
            spin = np.einsum("nji,nj->ni", turn, self._cvel[:, body, :3])
            change = np.einsum("nji,nj->ni", turn, self._accelerations[:, number, 3:])
            inertia = properties.inertia[:, body]
            torque = np.einsum("nij,nj->ni", turn, inertia * change + cross(spin, inertia * spin))
            net, contacts = sensor.weights
            if contacts:
                force = net * force + contacts * self._wrenches[:, number, :3]
                torque = net * torque + contacts * self._wrenches[:, number, 3:]
            pose = rotation_matrices(self._xquat[:, body])
            origin = self._xpos[:, body] + pose @ frame[:3]
            torque += cross(self._xipos[:, body] - origin, force)
            axes = pose @ rotation_matrices(frame[None, 3:])[0]
            if sensor.properties.use_world_frame:
                axes = np.broadcast_to(np.eye(3), axes.shape)
            self._sensors[:, number, :3] = np.einsum("nji,nj->ni", axes, force)
            self._sensors[:, number, 3:] = np.einsum("nji,nj->ni", axes, torque)
        self._sensors[self.blown.numpy()] = 0.0

    def _body_velocities(self, start: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return the velocities of the bodies' centres of mass, and the angular ones, ``(num_envs, num_bodies, 3)``.

        With ``start`` they are those with which the last substep began.
        """
        ids, names = self._layout.bodies, ("cvel", "xipos", "subtree_com")
        cvel, xipos, com = (self._start[name] if start else self._batch.bind(name) for name in names)
        spin = cvel[:, ids, :3]
        arm = xipos[:, ids] - com[:, self._layout.model.body_rootid[ids]]
        return cvel[:, ids, 3:] + cross(spin, arm), spin

    def _link_damping_forces(self) -> np.ndarray:
        """Return the forces and torques that damp the links of actors of several bodies, ``(num_envs, num_bodies, 6)``.

        PhysX applies -m d (v + g h) at the centre of mass and -I d w, with rates d of at most 1 / h, where h is the
        step (scenes "damped arm" of tests/engine/physx_scenes.json). The poses must have been computed.
        """
        model, properties, ids = self._layout.model, self._properties, self._layout.bodies
        velocity, spin = self._body_velocities()
        xquat, step = self._xquat[:, ids], model.opt.timestep
        rates = np.minimum(self._layout.link_damping, 1.0 / step)
        weight = (1.0 - model.body_gravcomp[ids])[:, None] * properties.gravity[:, None]
        axes = quat_multiply(xquat.reshape(-1, 4), properties.iquat[:, ids].reshape(-1, 4))  # principal axes of inertia
        turn = rotation_matrices(axes).reshape(*xquat.shape[:2], 3, 3)
        principal_spin = np.einsum("nbji,nbj->nbi", turn, spin)
        turning = np.einsum("nbij,nbj->nbi", turn, properties.inertia[:, ids] * principal_spin)
        moving = properties.mass[:, ids, None] * (velocity + step * weight)
        return -np.concatenate([rates[:, :1] * moving, rates[:, 1:] * turning], axis=-1)

    def _read_jacobian(self, actor: int, out: np.ndarray) -> None:
        """Fill ``(num_envs, links, 6, dofs)``, with 6 more columns for a free base."""
        motion = self._bound("cdof")  # spatial velocities about the tree's centre of mass, as ``cvel``
        links, columns, moved = self._layout.structure(actor)
        if not self._layout.places[actor].fixed:
            base, out = out[..., :6], out[..., 6:]
            base[...] = np.eye(6)
            from_root = self._xipos[:, links] - self._xipos[:, links[:1]]
            base[:, :, :3, 3:] = cross(np.eye(3), from_root[:, :, None]).transpose(0, 1, 3, 2)
        arm = self._xipos[:, links] - self._com[:, self._layout.model.body_rootid[links]]
        spin = motion[:, None, columns, :3] * moved[..., None]
        linear = motion[:, None, columns, 3:] * moved[..., None] + cross(spin, arm[:, :, None])
        out[:, :, :3] = linear.transpose(0, 1, 3, 2)
        out[:, :, 3:] = spin.transpose(0, 1, 3, 2)

    def _read_mass_matrix(self, actor: int, out: np.ndarray) -> None:
        """Fill ``(num_envs, dofs, dofs)``."""
        values, columns = self._bound("M"), self._layout.dof_qvel[self._layout.places[actor].dofs]
        addresses = mass_addresses(self._layout.model, columns)
        out[...] = np.where(addresses >= 0, values[:, addresses], 0.0)
        diagonal = np.arange(len(columns))
        out[:, diagonal, diagonal] -= self._properties.armature[:, columns]

    def _bound(self, name: str) -> np.ndarray:
        """Return an output that few tasks read; it is copied from the batch from the first call on.

        It is that of the present properties, because readers use it together with their rows.
        """
        if name not in self._lazy or self._properties.written:
            self._lazy[name] = self._batch.bind(name)
            self._properties.flush()
            self._arrays_of = None
            self._derive()
        return self._lazy[name]

    def _live(self) -> dict[str, np.ndarray]:
        """Return the arrays on which a step and the readers depend, without the state of the last step."""
        last = {"state": self._batch.state, "contact": self._contacts, "force": self._dof_forces}
        names = ("position_targets", "velocity_targets", "efforts", "forces", "blown")
        if self._contact_lists.size:
            last["contact_lists"] = self._contact_lists
        if self.keeps_velocities:
            last |= {"joint_wrenches": self._joint_wrenches, "accelerations": self._body_accelerations}
        return {**last, "sensor": self._sensors, **{name: getattr(self, name).numpy() for name in names}}

    def get_state(self) -> dict[str, Tensor]:
        self._keep_last()
        self._finish()
        kept = {name: torch.from_numpy(np.array(x)) for name, x in {**self._live(), "stepped": self._stepped}.items()}
        return {**kept, "blow_ups": torch.tensor(self.blow_ups)}

    def set_state(self, state: dict[str, Tensor]) -> None:
        self._properties.flush()
        # body states are those of the last step, also after later writes
        self._unread, self._start, self._loaded, self._left_out = set(), {}, True, False
        self._stepped, self._kept = state["stepped"].numpy().copy(), True
        self._last = self._stepped
        self._derive()
        for name, x in self._live().items():
            x[...] = state[name].numpy()
        self.blow_ups = int(state["blow_ups"])


def largest(values: np.ndarray) -> float:
    """Return the largest absolute value, nan if there is one."""
    return float(np.abs(values).max(initial=0.0))


def _net_lists(layout: Layout, starts: np.ndarray) -> dict[int, tuple[list[int], np.ndarray]]:
    """Return bodies with a list of all their contacts, and the columns of these lists, by the number of slots."""
    found: dict[int, tuple[list[int], list[np.ndarray]]] = {}
    for wanted, start in zip(layout.contact_lists, starts):
        if wanted.other is None:
            bodies, columns = found.setdefault(wanted.slots, ([], []))
            bodies.append(wanted.body)
            columns.append(np.arange(start, start + wanted.size))
    return {slots: (bodies, np.concatenate(columns)) for slots, (bodies, columns) in found.items()}
