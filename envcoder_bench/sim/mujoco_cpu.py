"""MuJoCo on the CPU: a batch of simulations on a C++ thread pool, float64 inside, float32 outside.

An environment's numbers depend neither on the number of environments nor on that of threads: MuJoCo's batch is bitwise
equal to single simulations, and all other arithmetic is elementwise and rounded exactly by IEEE 754 (sums, products,
quotients), one operation at a time.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import copy
from collections import Counter
from collections.abc import Callable, Sequence

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch
from torch import Tensor

from envcoder_bench.sim.base import Variation
from envcoder_bench.sim.mujoco_model import MAX_QPOS, MAX_QVEL, RobotModel, outermost_geom
from envcoder_bench.sim.mujoco_tensors import MujocoTensors
from mujoco_batches.physics.batch import MAX_COMMAND, collected, make_batch, step_batch, take_overflows
from mujoco_batches.physics.live_tensors import PoseSource, restore, save
from mujoco_batches.physics.rotations import cross, quat_multiply, rotate

_MAX_BODY = np.array([MAX_QPOS] * 7 + [MAX_QVEL] * 6)  # limits of the 13 numbers of a free body

Rows = slice | np.ndarray  # a selection of environments
_ALL = slice(None)


class MujocoCpu(MujocoTensors):
    """``num_envs`` robots in a ``mujoco.batch.Batch``."""

    def __init__(self, robot: RobotModel, num_envs: int, device: str = "cpu", num_threads: int | None = None) -> None:
        super().__init__(robot, num_envs, device)

        # views of the batch's own memory, which its step reads and writes
        self._batch = make_batch(_for_batch(robot), num_envs, num_threads)
        self._default_row = self._batch.state[0].copy()
        self._qpos = self._batch.bind("qpos")
        self._qvel = self._batch.bind("qvel")
        self._ctrl = self._batch.bind("ctrl")
        self._warmstart = self._batch.bind("qacc_warmstart")
        self._qfrc_actuator = self._batch.bind("qfrc_actuator")
        self._sensordata = self._batch.bind("sensordata")
        if robot.sensor_names:  # bound fields are copied at every step
            self._xpos, self._xquat = self._batch.bind("xpos"), self._batch.bind("xquat")
        self._gainprm = self._batch.expand("actuator_gainprm")
        self._biasprm = self._batch.expand("actuator_biasprm")

        # views of the tensors that tasks see, as NumPy
        self.engine_warnings: Counter[str] = Counter()
        self._saved: dict[str, Tensor] = {"rows": torch.from_numpy(self._batch.state), **self._live()}
        self._root, self._pos, self._vel = self.root_states.numpy(), self.dof_pos.numpy(), self.dof_vel.numpy()
        self._force, self._unstable = self.dof_force.numpy(), self.unstable.numpy()
        self._overflows = self.contact_overflows.numpy()
        self._contact = self.contact_forces.numpy().reshape(num_envs, -1)
        self._sensor, self._objects = self.sensor_forces.numpy(), self.object_states.numpy()
        self._joint_pos = slice(robot.first_qpos, robot.first_qpos + self.num_dofs)
        self._joint_vel = slice(robot.first_qvel, robot.first_qvel + self.num_dofs)
        self._refresh_motion()
        self._sites = CpuSites(self._batch, robot)
        self.site_states = self._sites.states
        self.jacobian, self.mass_matrix = self._sites.jacobian, self._sites.mass_matrix

    def pose_source(self) -> PoseSource:
        """Return the live poses of all environments, for pictures."""
        return PoseSource(self._robot.mj_model, self._qpos)

    @property
    def bytes_per_env(self) -> int:
        batch = (self._batch.warning, self._qfrc_actuator, self._sensordata, self._gainprm, self._biasprm)
        saved = sum(x.numel() * x.element_size() for x in self._saved.values())
        return (saved + sum(x.nbytes for x in batch)) // self.num_envs

    def set_drive_mode(self, effort: Tensor) -> None:
        self._effort.copy_(effort)
        mode, strength = self._effort.numpy()[:, None], self._strength.numpy()[:, None]
        gains = strength * self._gains.numpy()[:, None]
        # force = gain * ctrl + bias_pos * q + bias_vel * dq, clamped to the model's effort limits
        self._gainprm[:, :, 0] = np.where(mode, strength, gains * self._robot.stiffness)
        self._biasprm[:, :, 1] = np.where(mode, 0.0, -gains * self._robot.stiffness)
        self._biasprm[:, :, 2] = np.where(mode, 0.0, -gains * self._robot.damping)

    def vary(self, variation: Variation) -> None:
        for name, rows in self._robot.varied(variation).items():
            self._batch.expand(name)[...] = rows
        self._batch.set_const()
        self._strength.copy_(variation.strength)
        self._gains.copy_(variation.gains)
        self.set_drive_mode(self._effort)

    def track(self, bodies: Sequence[int]) -> Callable[[], Tensor]:
        positions = self._batch.bind("geom_xpos")
        geoms = [outermost_geom(self._robot.mj_model, body + 1) for body in bodies]
        return lambda: torch.from_numpy(positions[:, geoms].astype(np.float32))

    def apply_forces(self, forces: Tensor) -> None:
        self._batch.bind("xfrc_applied")[:, 1:, :3] = forces.detach().numpy()

    def step(self, command: Tensor) -> None:
        with np.errstate(over="ignore", invalid="ignore"), collected() as warnings:  # may overflow
            self._step(command.detach().numpy(), warnings)
        self.engine_warnings.update(warnings)

    def _step(self, command: np.ndarray, warnings: list[str]) -> None:
        # commands, 0 if one is not finite or a written state was refused
        bad = self._refused.numpy() | ~np.isfinite(command).all(axis=1)
        self._refused.zero_()
        self._ctrl[...] = command[:, self._robot.actuated]
        np.minimum(np.maximum(self._ctrl, -MAX_COMMAND, out=self._ctrl), MAX_COMMAND, out=self._ctrl)
        if bad.any():
            self._ctrl[bad] = 0.0
        # physics, and which environments became unstable
        failed = step_batch(self._batch, self._robot.substeps)
        bad[failed] = True
        # the other lines of an error are sizes of memory
        warnings += [self._batch.error(env).split("\n")[0] for env in failed.tolist()]
        bad |= ~(np.abs(self._qpos) <= MAX_QPOS).all(axis=1)  # NaN is not <= MAX_QPOS
        bad |= ~(np.abs(self._qvel) <= MAX_QVEL).all(axis=1)
        self._unstable[...] = bad
        self._overflows += take_overflows(self._batch) & ~bad

        # forces of the last substep
        self._force[...] = self._qfrc_actuator[:, self._joint_vel]
        contact = self._sensordata[:, : self._contact.shape[1]]
        np.subtract(0.0, contact, out=self._contact, casting="same_kind")  # MuJoCo gives the force on the other body
        for sensor, body in enumerate(self._robot.sensor_bodies):
            self._refresh_sensor(sensor, body)
        # unstable environments go on in the default state
        if bad.any():
            self._batch.state[bad] = self._default_row
            self._force[bad] = 0.0
            self._contact[bad] = 0.0
            self._sensor[bad] = 0.0
        self._refresh_motion()
        self._sites.refresh()

    def write(
        self,
        mask: Tensor,
        root_states: Tensor | None = None,
        dof_pos: Tensor | None = None,
        dof_vel: Tensor | None = None,
        object_states: Tensor | None = None,
    ) -> None:
        written = np.flatnonzero(mask.numpy())
        if written.size == 0:
            return
        arguments = (root_states if self._robot.floating else None, dof_pos, dof_vel, object_states)
        root, pos, vel, objects = (None if x is None else x.detach().numpy() for x in arguments)
        limits = ((root, _MAX_BODY), (pos, MAX_QPOS), (vel, MAX_QVEL), (objects, _MAX_BODY))
        # environments with a number beyond its limit are not written
        refused = ~_within_limits(written, *limits)
        ids = written[~refused]
        if root is not None:
            self._root[ids] = root[ids]
            self._write_free_body(ids, self._root[ids], 0, 0)
        if pos is not None:
            self._pos[ids] = pos[ids]
            self._qpos[ids, self._joint_pos] = self._pos[ids]
        if vel is not None:
            self._vel[ids] = vel[ids]
            self._qvel[ids, self._joint_vel] = self._vel[ids]
        if objects is not None:
            self._objects[ids] = objects[ids]
            for k in range(self._objects.shape[1]):
                self._write_free_body(ids, self._objects[ids, k], *self._object_place(k))
        if refused.any():
            self._put_back(written[refused])
        # forget the steps before
        self._warmstart[written] = 0.0
        self._force[written] = 0.0
        self._contact[written] = 0.0
        self._sensor[written] = 0.0
        with collected() as warnings:
            self._sites.refresh(written)
        self.engine_warnings.update(warnings)

    def _put_back(self, ids: np.ndarray) -> None:
        """Replace a state beyond the limits by the default state, and mark it as unstable in the next step."""
        self._batch.state[ids] = self._default_row
        self._refused[ids] = True
        self.unstable[ids] = True
        self._refresh_motion(ids)

    def get_state(self) -> dict[str, Tensor]:
        return save(self._saved)

    def set_state(self, state: dict[str, Tensor]) -> None:
        restore(self._saved, state)
        self.set_drive_mode(self._effort)
        self._sites.refresh()

    def _object_place(self, k: int) -> tuple[int, int]:
        """Return the offsets of an object's free joint in qpos and qvel."""
        return self._joint_pos.stop + 7 * k, self._joint_vel.stop + 6 * k

    def _write_free_body(self, ids: np.ndarray, states: np.ndarray, qpos: int, qvel: int) -> None:
        """Write ``(n, 13)`` states of a free body, as in ``root_states``, at its joint's offsets in qpos and qvel."""
        quat = states[:, [6, 3, 4, 5]].astype(np.float64)
        self._qpos[ids, qpos : qpos + 3] = states[:, 0:3]
        self._qpos[ids, qpos + 3 : qpos + 7] = quat
        self._qvel[ids, qvel : qvel + 3] = states[:, 7:10]
        self._qvel[ids, qvel + 3 : qvel + 6] = rotate(quat, states[:, 10:13].astype(np.float64), inverse=True)

    def _read_free_body(self, rows: Rows, states: np.ndarray, qpos: int, qvel: int) -> None:
        """Read the states of a free body, the reverse of ``_write_free_body``, for the environments ``rows``."""
        quat = self._qpos[rows, qpos + 3 : qpos + 7]
        states[rows, 0:3] = self._qpos[rows, qpos : qpos + 3]
        states[rows, 3:6] = quat[:, 1:4]
        states[rows, 6] = quat[:, 0]
        states[rows, 7:10] = self._qvel[rows, qvel : qvel + 3]
        states[rows, 10:13] = rotate(quat, self._qvel[rows, qvel + 3 : qvel + 6])

    def _refresh_sensor(self, sensor: int, body: int) -> None:
        """Compute a body's net contact force, and its torque about the body's origin, in the body's frame."""
        first = self._contact.shape[1] + 6 * sensor
        force = 0.0 - self._sensordata[:, 3 * body : 3 * body + 3]
        torque = 0.0 - self._sensordata[:, first : first + 3]  # about a point between the contacts
        arm = self._sensordata[:, first + 3 : first + 6] - self._xpos[:, body + 1]  # the first body is the world
        torque += cross(arm, force)
        quat = self._xquat[:, body + 1]
        self._sensor[:, sensor, 0:3] = rotate(quat, force, inverse=True)
        self._sensor[:, sensor, 3:6] = rotate(quat, torque, inverse=True)

    def _refresh_motion(self, rows: Rows = _ALL) -> None:
        """Copy positions and velocities to the float32 buffers, in Isaac Gym's conventions."""
        if self._robot.floating:
            self._read_free_body(rows, self._root, 0, 0)
        for k in range(self._objects.shape[1]):
            self._read_free_body(rows, self._objects[:, k], *self._object_place(k))
        self._pos[rows] = self._qpos[rows, self._joint_pos]
        self._vel[rows] = self._qvel[rows, self._joint_vel]


def _within_limits(ids: np.ndarray, *states: tuple[np.ndarray | None, float | np.ndarray]) -> np.ndarray:
    """Return whether the numbers of each environment in ``ids`` are within their limits."""
    within = np.ones(len(ids), dtype=bool)
    for x, limit in states:
        if x is not None:
            within &= (np.abs(x[ids]) <= limit).reshape(len(ids), -1).all(axis=1)  # False for NaN
    return within


def _for_batch(robot: RobotModel) -> mujoco.MjModel:
    """Return the model without the search for islands where it is one, a robot without objects.

    The search takes 4 % of a step, and its result is bitwise the same without it.
    """
    model = copy.copy(robot.mj_model)
    if not robot.object_names:
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    return model


class CpuSites:
    """Quantities computed from positions and velocities, because MuJoCo's fields lag one substep after a step.

    Attributes:
        states, jacobian, mass_matrix: as in ``Simulator``.
    """

    def __init__(self, batch: Batch, robot: RobotModel) -> None:
        sites, dofs, n = robot.sites, len(robot.dof_names), batch.nsim
        self._batch, self._sites = batch, sites
        self.states = torch.zeros(n, len(sites.names), 13)
        rows = 0 if sites.jacobian is None else 1
        self.jacobian = torch.zeros(n, 6 * rows, dofs)
        self.mass_matrix = torch.zeros(n, dofs * rows, dofs)
        if not sites.names:  # bound fields are copied at every step
            return
        self._pos, self._com = batch.bind("site_xpos"), batch.bind("subtree_com")
        self._quat, self._vel = batch.bind("xquat"), batch.bind("cvel")
        if rows:
            self._axes, self._inertia = batch.bind("cdof"), batch.bind("M")
            self._dofs = slice(robot.first_qvel, robot.first_qvel + dofs)
        self.refresh()

    def refresh(self, ids: np.ndarray | None = None) -> None:
        """Update the tensors from the batch's state, for all environments or ``ids``."""
        if not self._sites.names:
            return
        self._batch.forward(ids=ids, stage=mujoco.mjtStage.mjSTAGE_VEL)
        rows = slice(None) if ids is None else ids
        states = self.states.numpy()
        for k, (body, root, quat) in enumerate(zip(self._sites.bodies, self._sites.roots, self._sites.quats)):
            point = self._pos[rows, k]
            turn, shift = self._vel[rows, body, :3], self._vel[rows, body, 3:]
            states[rows, k, 0:3] = point
            states[rows, k, 3:7] = quat_multiply(self._quat[rows, body], quat[None])[:, [1, 2, 3, 0]]
            states[rows, k, 7:10] = shift + cross(turn, point - self._com[rows, root])
            states[rows, k, 10:13] = turn
        if self._sites.jacobian is not None:
            self._refresh_jacobian(rows, self._sites.jacobian)

    def _refresh_jacobian(self, rows: slice | np.ndarray, site: int) -> None:
        arm = self._pos[rows, site] - self._com[rows, self._sites.roots[site]]
        axes = self._axes[rows, self._dofs]
        jacobian = self.jacobian.numpy()
        for dof in np.flatnonzero(self._sites.moves):
            turn = axes[:, dof, :3]
            jacobian[rows, 0:3, dof] = axes[:, dof, 3:] + cross(turn, arm)
            jacobian[rows, 3:6, dof] = turn
        entries = self._sites.inertia
        self.mass_matrix.numpy()[rows] = np.where(entries < 0, 0.0, self._inertia[rows][:, entries])
