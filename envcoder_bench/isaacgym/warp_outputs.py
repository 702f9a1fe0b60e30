"""Outputs of MuJoCo Warp's worlds: contact forces, body states, force sensors, Jacobians, mass matrices."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from envcoder_bench.isaacgym import warp_output_kernels as kernels
from envcoder_bench.isaacgym.layout import Layout
from envcoder_bench.isaacgym.numerics import dofs_above, mass_addresses
from envcoder_bench.isaacgym.transforms import pose_array
from envcoder_bench.sim.warp_contacts import ContactForces

_DERIVED = ("xpos", "xquat", "xipos", "cvel", "subtree_com")


class WarpOutputs:
    """Outputs of a step. Outputs that take time are computed from their first read on.

    It must be created and used within Warp's scope of the device.

    Attributes:
        contacts: ``(num_envs, 3 * num_bodies)`` net contact forces of the last substep.
        contacts_array: the same, for Warp.
        sensors: ``(num_envs, num_sensors, 6)`` force and torque of the sensors after the last step.
    """

    def __init__(self, model: mjw.Model, data: mjw.Data, layout: Layout, device: torch.device) -> None:
        self._model, self._data, self._layout = model, data, layout
        self._wanted = {"bodies"} if layout.sensors else set()
        n, host = data.nworld, layout.model
        self.contacts = torch.zeros(n, 3 * len(layout.bodies), device=device)
        self.sensors = torch.zeros(n, len(layout.sensors), 6, device=device)
        self.contacts_array, self._sensors = wp.from_torch(self.contacts), wp.from_torch(self.sensors)
        self._bodies = wp.array(layout.bodies, dtype=wp.int32)
        row_of_body = np.full(host.nbody, -1)
        row_of_body[layout.bodies] = np.arange(len(layout.bodies))
        self._contacts = ContactForces(model, data, row_of_body, self.contacts_array)
        frames = np.array([pose_array(pose) for _, pose in layout.sensors]).reshape(-1, 7)
        self._sensor_bodies = wp.array(layout.bodies[[body for body, _ in layout.sensors]], dtype=wp.int32)
        self._sensor_pos = wp.array(frames[:, :3], dtype=wp.vec3)
        self._sensor_quat = wp.array(frames[:, 3:], dtype=wp.vec4)
        self._accelerations = wp.zeros((n, len(layout.sensors)), dtype=wp.spatial_vector)
        self._actors: dict[int, tuple[wp.array, ...]] = {}

    def want(self, what: str) -> bool:
        """Compute ``contacts``, ``bodies`` or ``mass`` from now on; return whether that is new."""
        if what in self._wanted:
            return False
        self._wanted.add(what)
        if what != "contacts":
            self._wanted.add("bodies")
        return True

    def derived(self) -> dict[str, Tensor]:
        """Return the tensors that readers use until the next step, by name."""
        return {"contacts": self.contacts, "sensors": self.sensors, **self.late()}

    def late(self) -> dict[str, Tensor]:
        """Return those of ``derived`` that are computed from their first read on."""
        names = [*_DERIVED, "cdof", "M"] if "mass" in self._wanted else list(_DERIVED)
        if "bodies" not in self._wanted:
            return {}
        return {name: wp.to_torch(getattr(self._data, name)) for name in names}

    def collect(self) -> None:
        """Launch the computation of accelerations and contacts, right after the last substep."""
        model, data = self._model, self._data
        if self._layout.sensors:
            wp.launch(
                kernels.read_accelerations,
                dim=(data.nworld, len(self._layout.sensors)),
                inputs=[
                    *(self._sensor_bodies, model.opt.timestep, model.body_parentid, model.body_rootid),
                    *(model.body_dofadr, model.body_dofnum, data.qvel, data.qacc, data.cdof, data.cdof_dot),
                    *(data.cvel, data.xipos, data.subtree_com),
                ],
                outputs=[self._accelerations],
            )
        if "contacts" in self._wanted:
            self._contacts.update()

    def collect_contacts(self) -> None:
        """Launch the sum of the contact forces on each body."""
        self._contacts.update()

    def refresh(self, failed: wp.array) -> None:
        """Launch the computation of body states, mass matrix and sensors from the state at the end of a step."""
        model, data = self._model, self._data
        if "bodies" in self._wanted:
            mjw.kinematics(model, data)
            mjw.com_pos(model, data)
            mjw.com_vel(model, data)
        if "mass" in self._wanted:
            mjw.crb(model, data)
        if self._layout.sensors:
            wp.launch(
                kernels.read_sensors,
                dim=(data.nworld, len(self._layout.sensors)),
                inputs=[
                    *(self._sensor_bodies, self._sensor_pos, self._sensor_quat, failed, self._accelerations),
                    *(model.body_mass, model.body_inertia, model.body_iquat),
                    *(data.xpos, data.xquat, data.xipos, data.cvel),
                ],
                outputs=[self._sensors],
            )

    def read_bodies(self, out: Tensor) -> None:
        data = self._data
        wp.launch(
            kernels.read_bodies,
            dim=(data.nworld, len(self._layout.bodies)),
            inputs=[
                *(self._bodies, self._model.body_rootid, data.xpos, data.xquat, data.xipos, data.cvel),
                data.subtree_com,
            ],
            outputs=[wp.from_torch(out.view(-1, 13))],
        )

    def read_jacobian(self, actor: int, out: Tensor) -> None:
        data, (links, columns, moved, _) = self._data, self._structure(actor)
        wp.launch(
            kernels.read_jacobian,
            dim=(data.nworld, len(links), len(columns)),
            inputs=[links, columns, moved, self._model.body_rootid, data.xipos, data.subtree_com, data.cdof],
            outputs=[wp.from_torch(out)],
        )

    def read_mass_matrix(self, actor: int, out: Tensor) -> None:
        _, columns, _, addresses = self._structure(actor)
        wp.launch(
            kernels.read_mass_matrix,
            dim=(self._data.nworld, *addresses.shape),
            inputs=[columns, addresses, self._data.M, self._model.dof_armature],
            outputs=[wp.from_torch(out)],
        )

    def _structure(self, actor: int) -> tuple[wp.array, ...]:
        """Return an actor's links, DOF columns, which DOF moves which link, and addresses in the packed mass matrix."""
        if actor not in self._actors:
            host, place = self._layout.model, self._layout.places[actor]
            links = self._layout.bodies[place.bodies.start + int(place.fixed) : place.bodies.stop]
            columns = self._layout.dof_qvel[place.dofs]
            moved = np.array([np.isin(columns, dofs_above(host, int(body))) for body in links])
            self._actors[actor] = (
                wp.array(links, dtype=wp.int32),
                wp.array(columns, dtype=wp.int32),
                wp.array(moved.reshape(len(links), len(columns)), dtype=wp.bool),
                wp.array(mass_addresses(host, columns), dtype=wp.int32),
            )
        return self._actors[actor]
