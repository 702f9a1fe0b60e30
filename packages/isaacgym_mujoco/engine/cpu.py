"""The CPU engine: ``mujoco.batch``, float64 inside, float32 outside."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
import torch
from torch import Tensor

from isaacgym_mujoco.api.params import DOF_MODE_POS, DOF_MODE_VEL
from isaacgym_mujoco.engine.base import Engine
from isaacgym_mujoco.engine.cpu_outputs import VEL, CpuOutputs
from isaacgym_mujoco.engine.cpu_properties import CpuProperties
from isaacgym_mujoco.engine.layout import ActorPlace, Layout
from isaacgym_mujoco.engine.numerics import first_state, position_limits, rotation_matrices
from isaacgym_mujoco.physics.batch import MAX_COMMAND, collected, make_batch, step_batch
from isaacgym_mujoco.physics.live_tensors import PoseSource

_NO_CONTACTS = int(mujoco.mjtDisableBit.mjDSBL_CONTACT) | int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)


class CpuEngine(Engine):
    """``num_envs`` copies of a layout in one batch."""

    def __init__(self, layout: Layout, poses: np.ndarray, num_threads: int | None = None) -> None:
        """Start all environments with the actors' ``poses``, ``(num_envs, actors, 7)``, quaternions wxyz."""
        super().__init__(layout, poses, torch.device("cpu"))
        model, self.blow_ups = layout.model, 0
        self._batch = batch = make_batch(model, self.num_envs, num_threads)
        self._qpos, self._qvel, self._warmstart = (batch.bind(n) for n in ("qpos", "qvel", "qacc_warmstart"))
        self._ctrl, self._xfrc = batch.bind("ctrl"), batch.bind("xfrc_applied")
        self._mocap = (batch.bind("mocap_pos"), batch.bind("mocap_quat")) if model.nmocap else None
        self._properties = CpuProperties(batch, layout, self.num_envs)
        self._outputs = CpuOutputs(batch, layout, self._properties, self.num_envs)

        # the state at the beginning, to which failed environments return
        self._position_limits = position_limits(model)
        qpos, mocap_pos, mocap_quat = first_state(layout, poses)
        self._qpos[...] = qpos
        if self._mocap is not None:
            self._mocap[0][...], self._mocap[1][...] = mocap_pos, mocap_quat
        self._first_state = batch.state.copy()
        self._disabled = batch.expand("opt.disableflags")
        self._compute_poses()
        self._stepped, self._derived = batch.state.copy(), True

    def pose_source(self) -> PoseSource:
        """Return the live poses of all environments, for pictures."""
        return PoseSource(self._layout.model, self._qpos, self._mocap)

    def _before_change(self) -> None:
        self._derive()

    def step(self) -> None:
        self._properties.flush()
        bad = self._load_commands()
        loads = self._xfrc[:, self._layout.bodies]
        with np.errstate(over="ignore", invalid="ignore"), collected():
            for substep in range(self._layout.substeps):
                if self._properties.steadied:
                    self._steady()
                damp_roots(self._layout, self._properties, self._qpos, self._qvel)
                if self._layout.link_damping.any():
                    self._compute_poses()
                    self._xfrc[:, self._layout.bodies] = loads + self._outputs.link_damping_forces()
                bad[step_batch(self._batch)] = True
                if substep == self._layout.substeps - 1:
                    self._outputs.collect()
                limit_velocities(self._layout, self._properties, self._qpos, self._qvel)
            # failed environments go on in their first state
            inside = (np.abs(self._qpos) <= self._position_limits).all(axis=1)
            bad |= ~(inside & np.isfinite(self._qvel).all(axis=1))
            if bad.any():
                self._batch.state[bad] = self._first_state[bad]
                self.blow_ups += int(bad.sum())
            self.blown.copy_(torch.from_numpy(bad))
            self._outputs.clear(bad)
        # efforts and forces act in one step, and readers get the state at its end
        self._stepped, self._derived = self._batch.state.copy(), False
        self.efforts.zero_()
        self.forces.zero_()

    def _derive(self) -> None:
        """Compute poses of bodies and forces of sensors at the end of the last step, if no one has read them since."""
        if self._derived:
            return
        present = self._batch.state.copy()  # it may have been set since
        self._batch.state[...] = self._stepped
        with np.errstate(over="ignore", invalid="ignore"), collected():
            self._compute_poses()
            self._outputs.read_sensors()
            self._outputs.clear_sensors(self.blown.numpy())
        self._batch.state[...] = present
        self._derived = True

    def _compute_poses(self) -> None:
        """Compute poses and velocities of bodies, and what follows from them, without contacts and constraints."""
        self._disabled |= _NO_CONTACTS
        try:
            self._batch.forward(stage=VEL)
        finally:
            self._disabled &= ~_NO_CONTACTS

    def _load_commands(self) -> np.ndarray:
        """Load commands and forces; return where they are not finite, ``(num_envs,)`` bool: these get none."""
        drives = self._properties
        position, velocity = self.position_targets.numpy(), self.velocity_targets.numpy()
        damped, forces = drives.damping * velocity, self.forces.numpy()
        command = np.where(drives.mode == DOF_MODE_POS, drives.stiffness * position + damped, self.efforts.numpy())
        command = np.where(drives.mode == DOF_MODE_VEL, damped, command)
        bad = np.array(~np.isfinite(command).all(axis=1) | ~np.isfinite(forces).all(axis=(1, 2)))
        self._ctrl[...] = np.clip(np.where(bad[:, None], 0.0, command), -MAX_COMMAND, MAX_COMMAND)
        self._xfrc[:, self._layout.bodies] = np.where(bad[:, None, None], 0.0, forces)
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

    def write_roots_masked(self, mask: Tensor, states: Tensor) -> None:
        written = mask.numpy().reshape(self.num_envs, self.num_actors)
        values = states.detach().numpy().reshape(self.num_envs, self.num_actors, 13)
        for k, actor in enumerate(self._layout.places):
            ids = np.flatnonzero(written[:, k])
            if ids.size == 0:
                continue
            state = values[ids, k].astype(float)
            self._put(ids, actor, np.concatenate([state[:, :3], state[:, [6, 3, 4, 5]]], axis=1))
            if not actor.fixed:
                turn, spin = rotation_matrices(self._qpos[ids, actor.qpos + 3 : actor.qpos + 7]), state[:, 10:13]
                arm = np.einsum("nij,nj->ni", turn, self._properties.ipos[ids, actor.root])
                self._qvel[ids, actor.qvel : actor.qvel + 3] = state[:, 7:10] - np.cross(spin, arm)
                self._qvel[ids, actor.qvel + 3 : actor.qvel + 6] = np.einsum("nji,nj->ni", turn, spin)
        self._warmstart[written.any(axis=1)] = 0.0

    def _put(self, ids: np.ndarray, actor: ActorPlace, pose: np.ndarray) -> None:
        """Set the pose of a root in some environments: position and quaternion wxyz, ``(n, 7)``."""
        norm = np.linalg.norm(pose[:, 3:], axis=1, keepdims=True)
        quat = np.where(norm > 1e-9, pose[:, 3:] / np.maximum(norm, 1e-9), [1.0, 0.0, 0.0, 0.0])
        if actor.fixed and self._mocap is not None:
            self._mocap[0][ids, actor.mocap], self._mocap[1][ids, actor.mocap] = pose[:, :3], quat
        else:
            self._qpos[ids, actor.qpos : actor.qpos + 3] = pose[:, :3]
            self._qpos[ids, actor.qpos + 3 : actor.qpos + 7] = quat

    def write_dofs_masked(self, mask: Tensor, states: Tensor) -> None:
        written = mask.numpy().reshape(self.num_envs, self.num_actors)
        values = states.detach().numpy().reshape(self.num_envs, self.num_dofs, 2)
        for k, actor in enumerate(self._layout.places):
            ids = np.flatnonzero(written[:, k])
            if ids.size and actor.dofs.stop > actor.dofs.start:
                self._qpos[ids[:, None], self._layout.dof_qpos[actor.dofs]] = values[ids, actor.dofs, 0]
                self._qvel[ids[:, None], self._layout.dof_qvel[actor.dofs]] = values[ids, actor.dofs, 1]
        self._warmstart[written.any(axis=1)] = 0.0

    def read(self, quantity: str, out: Tensor, actor: int = -1) -> None:
        n, values, outputs = self.num_envs, out.detach().numpy(), self._outputs
        # positions of bodies follow from the joints: computed where they are read
        if quantity not in ("roots", "dofs", "contact_forces", "dof_forces"):
            self._derive()
        match quantity:
            case "roots":
                self._read_roots(values.reshape(n, self.num_actors, 13))
            case "dofs":
                states = values.reshape(n, self.num_dofs, 2)
                states[..., 0] = self._qpos[:, self._layout.dof_qpos]
                states[..., 1] = self._qvel[:, self._layout.dof_qvel]
            case "bodies":
                outputs.read_bodies(values.reshape(n, self.num_bodies, 13))
            case "centres":
                outputs.read_centres(values.reshape(n, self.num_bodies, 3))
            case "jacobian":
                outputs.read_jacobian(actor, values)
            case "mass_matrix":
                outputs.read_mass_matrix(actor, values)
            case _:
                held = {"contact_forces": outputs.contacts, "dof_forces": outputs.dof_forces}
                values[...] = held.get(quantity, outputs.sensors).reshape(values.shape)

    def _read_roots(self, states: np.ndarray) -> None:
        """Fill ``(num_envs, num_actors, 13)``."""
        for k, actor in enumerate(self._layout.places):
            if actor.fixed and self._mocap is not None:
                position, quat = self._mocap[0][:, actor.mocap], self._mocap[1][:, actor.mocap]
                states[:, k, 7:] = 0.0
            else:
                position = self._qpos[:, actor.qpos : actor.qpos + 3]
                quat = self._qpos[:, actor.qpos + 3 : actor.qpos + 7]
                turn = rotation_matrices(quat)
                spin = np.einsum("nij,nj->ni", turn, self._qvel[:, actor.qvel + 3 : actor.qvel + 6])
                arm = np.einsum("nij,nj->ni", turn, self._properties.ipos[:, actor.root])
                states[:, k, 7:10] = self._qvel[:, actor.qvel : actor.qvel + 3] + np.cross(spin, arm)
                states[:, k, 10:13] = spin
            states[:, k, :3], states[:, k, 3:7] = position, quat[:, [1, 2, 3, 0]]

    def _live(self) -> dict[str, np.ndarray]:
        """Return the arrays on which a step and the readers depend, without the state of the last step."""
        outputs = self._outputs
        last = {"state": self._batch.state, "contact": outputs.contacts, "force": outputs.dof_forces}
        names = ("position_targets", "velocity_targets", "efforts", "forces", "blown")
        return {**last, "sensor": outputs.sensors, **{name: getattr(self, name).numpy() for name in names}}

    def get_state(self) -> dict[str, Tensor]:
        self._derive()
        kept = {name: torch.from_numpy(np.array(x)) for name, x in {**self._live(), "stepped": self._stepped}.items()}
        return {**kept, "blow_ups": torch.tensor(self.blow_ups)}

    def set_state(self, state: dict[str, Tensor]) -> None:
        self._properties.flush()
        # body states are those of the last step, also after later writes
        self._stepped = state["stepped"].numpy().copy()
        self._batch.state[...] = self._stepped
        self._compute_poses()
        self._derived = True
        for name, x in self._live().items():
            x[...] = state[name].numpy()
        self.blow_ups = int(state["blow_ups"])


def damp_roots(layout: Layout, properties: CpuProperties, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Damp the velocities of free roots before a physics step, as PhysX: those of the centre of mass, by 1 - rate h."""
    for actor, rates in zip(layout.places, layout.root_damping):
        if not any(rates):
            continue
        linear, angular = (min(rate * layout.model.opt.timestep, 1.0) for rate in rates)
        velocity, spin = qvel[:, actor.qvel : actor.qvel + 3], qvel[:, actor.qvel + 3 : actor.qvel + 6]
        arm = properties.ipos[:, actor.root]
        if linear != angular and arm.any():  # qvel has the velocity of the root's origin
            turn = rotation_matrices(qpos[:, actor.qpos + 3 : actor.qpos + 7])
            moved = (angular - linear) * np.einsum("nij,nj->ni", turn, np.cross(spin, arm))
            velocity[...] = (1.0 - linear) * velocity + moved
        else:
            velocity *= 1.0 - linear
        spin *= 1.0 - angular


def limit_velocities(layout: Layout, properties: CpuProperties, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Apply velocity limits; joints have moved with the velocities of the physics step, and move back."""
    columns = layout.dof_qvel
    joint = qvel[:, columns]
    limited = np.clip(joint, -properties.max_velocity, properties.max_velocity)
    if (limited != joint).any():
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
