"""Outputs of the CPU engine's steps: contact forces, body states, force sensors, Jacobians, mass matrices."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import mujoco
import numpy as np
from mujoco.batch import Batch

from isaacgym_mujoco.api.transforms import pose_array
from isaacgym_mujoco.engine.cpu_properties import CpuProperties
from isaacgym_mujoco.engine.layout import Layout
from isaacgym_mujoco.engine.numerics import mass_addresses, quat_multiply, rotation_matrices

VEL = int(mujoco.mjtStage.mjSTAGE_VEL)


class CpuOutputs:
    """Outputs of a step.

    Attributes:
        contacts: ``(num_envs, num_bodies, 3)`` net contact forces of the last substep.
        dof_forces: ``(num_envs, num_dofs)`` forces of the drives in the last substep.
        sensors: ``(num_envs, num_sensors, 6)`` force and torque of the sensors after the last step.
    """

    def __init__(self, batch: Batch, layout: Layout, properties: CpuProperties, num_envs: int) -> None:
        self._batch, self._layout, self._properties = batch, layout, properties
        names = ("xpos", "xquat", "xipos", "cvel", "subtree_com", "sensordata", "qfrc_actuator")
        self._xpos, self._xquat, self._xipos, self._cvel, self._com, self._sensordata, self._qfrc = (
            batch.bind(name) for name in names
        )
        self._lazy: dict[str, np.ndarray] = {}
        self._sensor_frames = [(layout.bodies[body], pose_array(pose)) for body, pose in layout.sensors]
        self.contacts = np.zeros((num_envs, len(layout.bodies), 3))
        self.dof_forces = np.zeros((num_envs, len(layout.dof_qpos)))
        self.sensors = np.zeros((num_envs, len(layout.sensors), 6))
        self._accelerations = np.zeros_like(self.sensors)

    def collect(self) -> None:
        """Copy what only a substep computes: contacts, drive forces, accelerations."""
        contacts = self.contacts[0].size
        self.contacts[...] = -self._sensordata[:, :contacts].reshape(self.contacts.shape)
        self.dof_forces[...] = self._qfrc[:, self._layout.dof_qvel]
        self._accelerations[...] = self._sensordata[:, contacts:].reshape(self._accelerations.shape)
        self._accelerations[:, :, :3] += self._properties.gravity[:, None]

    def clear(self, envs: np.ndarray) -> None:
        """Zero the contact and drive forces of the environments where ``envs`` is True."""
        self.contacts[envs], self.dof_forces[envs] = 0.0, 0.0

    def clear_sensors(self, envs: np.ndarray) -> None:
        """Zero the sensors of the environments where ``envs`` is True."""
        self.sensors[envs] = 0.0

    def read_sensors(self) -> None:
        """Compute forces and torques of the sensors from the last accelerations and the state at the end of a step."""
        properties = self._properties
        for number, (body, frame) in enumerate(self._sensor_frames):
            force = properties.mass[:, body, None] * self._accelerations[:, number, :3]
            turn = rotation_matrices(quat_multiply(self._xquat[:, body], properties.iquat[:, body]))  # principal axes
            spin = np.einsum("nji,nj->ni", turn, self._cvel[:, body, :3])
            change = np.einsum("nji,nj->ni", turn, self._accelerations[:, number, 3:])
            inertia = properties.inertia[:, body]
            torque = np.einsum("nij,nj->ni", turn, inertia * change + np.cross(spin, inertia * spin))
            pose = rotation_matrices(self._xquat[:, body])
            origin = self._xpos[:, body] + pose @ frame[:3]
            torque += np.cross(self._xipos[:, body] - origin, force)
            axes = pose @ rotation_matrices(frame[None, 3:])[0]
            self.sensors[:, number, :3] = np.einsum("nji,nj->ni", axes, force)
            self.sensors[:, number, 3:] = np.einsum("nji,nj->ni", axes, torque)

    def read_bodies(self, states: np.ndarray) -> None:
        """Fill ``(num_envs, num_bodies, 13)``."""
        ids = self._layout.bodies
        states[..., 0:3] = self._xpos[:, ids]
        states[..., 3:7] = self._xquat[:, ids][..., [1, 2, 3, 0]]
        states[..., 7:10], states[..., 10:13] = self._velocities()

    def read_centres(self, centres: np.ndarray) -> None:
        """Fill ``(num_envs, num_bodies, 3)``."""
        centres[...] = self._xipos[:, self._layout.bodies]

    def _velocities(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the velocities of the bodies' centres of mass, and the angular ones, ``(num_envs, num_bodies, 3)``."""
        ids = self._layout.bodies
        spin = self._cvel[:, ids, :3]
        arm = self._xipos[:, ids] - self._com[:, self._layout.model.body_rootid[ids]]
        return self._cvel[:, ids, 3:] + np.cross(spin, arm), spin

    def link_damping_forces(self) -> np.ndarray:
        """Return the forces and torques that damp the links of actors of several bodies, ``(num_envs, num_bodies, 6)``.

        PhysX applies -m d (v + g h) at the centre of mass and -I d w, with rates d of at most 1 / h, where h is the
        step (scenes "damped arm" of tests/engine/physx_scenes.json). The poses must have been computed.
        """
        model, properties, ids = self._layout.model, self._properties, self._layout.bodies
        velocity, spin = self._velocities()
        xquat, step = self._xquat[:, ids], model.opt.timestep
        rates = np.minimum(self._layout.link_damping, 1.0 / step)
        weight = (1.0 - model.body_gravcomp[ids])[:, None] * properties.gravity[:, None]
        axes = quat_multiply(xquat.reshape(-1, 4), properties.iquat[:, ids].reshape(-1, 4))  # of inertia
        turn = rotation_matrices(axes).reshape(*xquat.shape[:2], 3, 3)
        principal_spin = np.einsum("nbji,nbj->nbi", turn, spin)
        turning = np.einsum("nbij,nbj->nbi", turn, properties.inertia[:, ids] * principal_spin)
        moving = properties.mass[:, ids, None] * (velocity + step * weight)
        return -np.concatenate([rates[:, :1] * moving, rates[:, 1:] * turning], axis=-1)

    def read_jacobian(self, actor: int, out: np.ndarray) -> None:
        """Fill ``(num_envs, links, 6, dofs)``, with 6 more columns for a free base."""
        motion = self._bound("cdof")  # spatial velocities about the tree's centre of mass, as ``cvel``
        links, columns, moved = self._layout.structure(actor)
        if not self._layout.places[actor].fixed:
            base, out = out[..., :6], out[..., 6:]
            base[...] = np.eye(6)
            from_root = self._xipos[:, links] - self._xipos[:, links[:1]]
            base[:, :, :3, 3:] = _cross(np.eye(3), from_root[:, :, None]).transpose(0, 1, 3, 2)
        arm = self._xipos[:, links] - self._com[:, self._layout.model.body_rootid[links]]
        spin = motion[:, None, columns, :3] * moved[..., None]
        linear = motion[:, None, columns, 3:] * moved[..., None] + _cross(spin, arm[:, :, None])
        out[:, :, :3] = linear.transpose(0, 1, 3, 2)
        out[:, :, 3:] = spin.transpose(0, 1, 3, 2)

    def read_mass_matrix(self, actor: int, out: np.ndarray) -> None:
        """Fill ``(num_envs, dofs, dofs)``."""
        values, columns = self._bound("M"), self._layout.dof_qvel[self._layout.places[actor].dofs]
        addresses = mass_addresses(self._layout.model, columns)
        out[...] = np.where(addresses >= 0, values[:, addresses], 0.0)
        diagonal = np.arange(len(columns))
        out[:, diagonal, diagonal] -= self._properties.armature[:, columns]

    def _bound(self, name: str) -> np.ndarray:
        """Return an output that few tasks read; it is copied from the batch from the first call on."""
        if name not in self._lazy:
            self._lazy[name] = self._batch.bind(name)
            self._batch.forward(stage=VEL)
        return self._lazy[name]


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cross product ``(..., 3)``; numpy's is slow for many axes."""
    return np.stack([a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in ((1, 2), (2, 0), (0, 1))], axis=-1)
