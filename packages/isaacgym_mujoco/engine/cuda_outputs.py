"""Outputs of MuJoCo Warp's worlds: contact forces, body states, force sensors, Jacobians, mass matrices."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from isaacgym_mujoco.api.transforms import pose_array
from isaacgym_mujoco.engine.layout import Layout
from isaacgym_mujoco.engine.numerics import mass_addresses
from isaacgym_mujoco.physics.warp_contacts import ContactForces
from isaacgym_mujoco.physics.warp_functions import as_vec4, conjugate, multiply, rotate, set_state_row, velocity_at

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
        self._wanted: set[str] = set()
        n, host = data.nworld, layout.model
        self.contacts = torch.zeros(n, 3 * len(layout.bodies), device=device)
        self.sensors = torch.zeros(n, len(layout.sensors), 6, device=device)
        self.contacts_array, self._sensors = wp.from_torch(self.contacts), wp.from_torch(self.sensors)
        self._bodies = wp.array(layout.bodies, dtype=wp.int32)
        # contacts, summed by body
        row_of_body = np.full(host.nbody, -1)
        row_of_body[layout.bodies] = np.arange(len(layout.bodies))
        self._contacts = ContactForces(model, data, row_of_body, self.contacts_array)
        # force sensors, in frames of their bodies
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
                read_accelerations,
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
        if "bodies" in self._wanted or self._layout.sensors:
            mjw.kinematics(model, data)
            mjw.com_pos(model, data)
            mjw.com_vel(model, data)
        if "mass" in self._wanted:
            mjw.crb(model, data)
        if self._layout.sensors:
            wp.launch(
                read_sensors,
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
            read_bodies,
            dim=(data.nworld, len(self._layout.bodies)),
            inputs=[
                *(self._bodies, self._model.body_rootid, data.xpos, data.xquat, data.xipos, data.cvel),
                data.subtree_com,
            ],
            outputs=[wp.from_torch(out.view(-1, 13))],
        )

    def centres(self) -> Tensor:
        """Return the bodies' centres of mass, ``(num_envs, num_bodies, 3)``."""
        return wp.to_torch(self._data.xipos)[:, wp.to_torch(self._bodies).long()]

    def read_jacobian(self, actor: int, out: Tensor) -> None:
        data, (links, columns, moved, _) = self._data, self._structure(actor)
        base = 0 if self._layout.places[actor].fixed else 6
        wp.launch(
            read_jacobian,
            dim=(data.nworld, len(links), base + len(columns)),
            inputs=[base, links, columns, moved, self._model.body_rootid, data.xipos, data.subtree_com, data.cdof],
            outputs=[wp.from_torch(out)],
        )

    def read_mass_matrix(self, actor: int, out: Tensor) -> None:
        _, columns, _, addresses = self._structure(actor)
        wp.launch(
            read_mass_matrix,
            dim=(self._data.nworld, *addresses.shape),
            inputs=[columns, addresses, self._data.M, self._model.dof_armature],
            outputs=[wp.from_torch(out)],
        )

    def _structure(self, actor: int) -> tuple[wp.array, ...]:
        """Return an actor's links, DOF columns, which DOF moves which link, and addresses in the packed mass matrix."""
        if actor not in self._actors:
            links, columns, moved = self._layout.structure(actor)
            self._actors[actor] = (
                wp.array(links, dtype=wp.int32),
                wp.array(columns, dtype=wp.int32),
                wp.array(moved, dtype=wp.bool),
                wp.array(mass_addresses(self._layout.model, columns), dtype=wp.int32),
            )
        return self._actors[actor]


@wp.kernel(enable_backward=False)
def read_bodies(
    bodies: wp.array[wp.int32],
    body_rootid: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.quat],
    xipos: wp.array2d[wp.vec3],
    cvel: wp.array2d[wp.spatial_vector],
    subtree_com: wp.array2d[wp.vec3],
    out: wp.array2d[wp.float32],
):
    """Fill a body's 13 numbers, one thread per world and body."""
    env, row = wp.tid()
    body = bodies[row]
    linear = velocity_at(cvel[env, body], xipos[env, body] - subtree_com[env, body_rootid[body]])
    quat = as_vec4(xquat[env, body])
    angular = wp.spatial_top(cvel[env, body])
    set_state_row(env * bodies.shape[0] + row, 0, xpos[env, body], quat, linear, angular, out)


@wp.kernel(enable_backward=False)
def read_accelerations(
    sensor_bodies: wp.array[wp.int32],
    timestep: wp.array[wp.float32],
    body_parentid: wp.array[wp.int32],
    body_rootid: wp.array[wp.int32],
    body_dofadr: wp.array[wp.int32],
    body_dofnum: wp.array[wp.int32],
    qvel: wp.array2d[wp.float32],
    qacc: wp.array2d[wp.float32],
    cdof: wp.array2d[wp.spatial_vector],
    cdof_dot: wp.array2d[wp.spatial_vector],
    cvel: wp.array2d[wp.spatial_vector],
    xipos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    accelerations: wp.array2d[wp.spatial_vector],
):
    """Compute the accelerations of the sensors' bodies in the last substep: angular, linear of the centre of mass.

    It must run right after a substep, which has advanced ``qvel`` but not the quantities derived from it.
    """
    env, sensor = wp.tid()
    body = sensor_bodies[sensor]
    h = timestep[env % timestep.shape[0]]
    # sum of what each joint up to the root adds; the velocity is that at the beginning of the substep
    total = wp.spatial_vector()
    link = body
    while link > 0:
        for k in range(body_dofnum[link]):
            dof = body_dofadr[link] + k
            total += cdof_dot[env, dof] * (qvel[env, dof] - h * qacc[env, dof]) + cdof[env, dof] * qacc[env, dof]
        link = body_parentid[link]
    # from the centre of mass of the tree, where cdof is, to that of the body
    arm = xipos[env, body] - subtree_com[env, body_rootid[body]]
    spin = wp.spatial_top(cvel[env, body])
    linear = velocity_at(total, arm) + wp.cross(spin, velocity_at(cvel[env, body], arm))
    accelerations[env, sensor] = wp.spatial_vector(wp.spatial_top(total), linear)


@wp.kernel(enable_backward=False)
def read_sensors(
    sensor_bodies: wp.array[wp.int32],
    sensor_pos: wp.array[wp.vec3],
    sensor_quat: wp.array[wp.vec4],
    failed: wp.array[wp.bool],
    accelerations: wp.array2d[wp.spatial_vector],
    body_mass: wp.array2d[wp.float32],
    body_inertia: wp.array2d[wp.vec3],
    body_iquat: wp.array2d[wp.quat],
    xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.quat],
    xipos: wp.array2d[wp.vec3],
    cvel: wp.array2d[wp.spatial_vector],
    out: wp.array3d[wp.float32],
):
    """Compute the net force on a sensor's body and its torque about the sensor, in the sensor's frame."""
    env, sensor = wp.tid()
    body = sensor_bodies[sensor]
    if failed[env]:
        for i in range(6):
            out[env, sensor, i] = 0.0
        return
    acceleration = accelerations[env, sensor]
    force = body_mass[env % body_mass.shape[0], body] * wp.spatial_bottom(acceleration)
    pose = as_vec4(xquat[env, body])
    axes = multiply(pose, as_vec4(body_iquat[env % body_iquat.shape[0], body]))  # principal axes
    moments = body_inertia[env % body_inertia.shape[0], body]
    spin = rotate(conjugate(axes), wp.spatial_top(cvel[env, body]))
    change = rotate(conjugate(axes), wp.spatial_top(acceleration))
    torque = rotate(axes, wp.cw_mul(moments, change) + wp.cross(spin, wp.cw_mul(moments, spin)))
    origin = xpos[env, body] + rotate(pose, sensor_pos[sensor])
    torque = torque + wp.cross(xipos[env, body] - origin, force)
    frame = conjugate(multiply(pose, sensor_quat[sensor]))
    force = rotate(frame, force)
    torque = rotate(frame, torque)
    for i in range(3):
        out[env, sensor, i] = force[i]
        out[env, sensor, 3 + i] = torque[i]


@wp.kernel(enable_backward=False)
def read_jacobian(
    base: int,
    links: wp.array[wp.int32],
    columns: wp.array[wp.int32],
    moved: wp.array2d[wp.bool],
    body_rootid: wp.array[wp.int32],
    xipos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cdof: wp.array2d[wp.spatial_vector],
    out: wp.array4d[wp.float32],
):
    """Fill a link's column for a DOF, one thread per world, link and column; the first ``base`` are a free root's."""
    env, link, column = wp.tid()
    body = links[link]
    linear, spin = wp.vec3(), wp.vec3()
    if column < base:
        if column < 3:
            linear[column] = 1.0
        else:
            spin[column - 3] = 1.0
            linear = wp.cross(spin, xipos[env, body] - xipos[env, links[0]])
    elif moved[link, column - base]:
        axis = cdof[env, columns[column - base]]
        linear = velocity_at(axis, xipos[env, body] - subtree_com[env, body_rootid[body]])
        spin = wp.spatial_top(axis)
    for i in range(3):
        out[env, link, i, column] = linear[i]
        out[env, link, 3 + i, column] = spin[i]


@wp.kernel(enable_backward=False)
def read_mass_matrix(
    columns: wp.array[wp.int32],
    addresses: wp.array2d[wp.int32],
    packed: wp.array2d[wp.float32],
    armature: wp.array2d[wp.float32],
    out: wp.array3d[wp.float32],
):
    """Fill an element from MuJoCo's packed matrix, without armature, one thread per world, row and column.

    Address -1 is 0.
    """
    env, row, column = wp.tid()
    address = addresses[row, column]
    value = wp.float32(0.0)
    if address >= 0:
        value = packed[env, address]
    if row == column:
        value -= armature[env % armature.shape[0], columns[row]]
    out[env, row, column] = value
