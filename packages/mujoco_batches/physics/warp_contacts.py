"""Net contact forces of MuJoCo Warp's worlds, without its contact sensors, which sort every world's contacts."""

# Warp compiles the kernels; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import mujoco_warp as mjw
import numpy as np
import warp as wp

CONTACT = wp.constant(5)  # first of mjtConstraint's types of contacts


class ContactForces:
    """Net contact forces on bodies; it must be created and used within Warp's scope of the device.

    Args:
        row_of_body: ``(nbody,)`` the row of each body in ``out``, -1 for bodies without one.
        out: ``(num_envs, 3 * rows)`` forces in the world frame, which ``update`` fills.
        ordered: whether to add in the order of the constraint rows, one thread per world.

    Attributes:
        wrench: ``(naconmax,)`` force and torque of each contact in the world frame.
    """

    def __init__(
        self, model: mjw.Model, data: mjw.Data, row_of_body: np.ndarray, out: wp.array, ordered: bool = False
    ) -> None:
        self._model, self._data, self._out, self._ordered = model, data, out, ordered
        self._row_of_body = wp.array(row_of_body, dtype=wp.int32)
        self._ids = wp.array(np.arange(data.naconmax), dtype=wp.int32)
        self.wrench = wp.zeros(data.naconmax, dtype=wp.spatial_vector)

    @property
    def capacity(self) -> int:
        """Bytes of the arrays."""
        return self._ids.capacity + self.wrench.capacity

    def update(self) -> None:
        """Launch the sum of the contacts of the last substep."""
        model, data = self._model, self._data
        self._out.zero_()
        mjw.contact_force(model, data, self._ids, True, self.wrench)
        # sums of atomic additions depend on their order
        if self._ordered:
            bodies = [data.contact.geom, model.geom_bodyid, self._row_of_body, self.wrench]
            rows = [data.nefc, data.efc.type, data.efc.id, data.contact.efc_address]
            wp.launch(add_contact_forces_in_order, dim=data.nworld, inputs=[*rows, *bodies], outputs=[self._out])
            return
        wp.launch(
            add_contact_forces,
            dim=data.naconmax,
            inputs=[
                *(data.nacon, data.contact.worldid, data.contact.geom, model.geom_bodyid),
                *(self._row_of_body, self.wrench),
            ],
            outputs=[self._out],
        )


@wp.func
def contact_at(
    kind: wp.array2d[wp.int32], ident: wp.array2d[wp.int32], address: wp.array2d[wp.int32], world: int, row: int
) -> int:
    """Return the contact whose first constraint row this is, -1 for other rows. A contact has several rows."""
    if kind[world, row] < CONTACT or address[ident[world, row], 0] != row:
        return -1
    return ident[world, row]


@wp.func
def wrench_on(side: int, wrench: wp.spatial_vector, arm: wp.vec3) -> wp.spatial_vector:
    """Return force and torque on a contact's first or second body; ``arm`` is that of the contact's point."""
    sign = 2.0 * float(side) - 1.0  # the wrench acts on the second body
    force = sign * wp.spatial_top(wrench)
    return wp.spatial_vector(force, sign * wp.spatial_bottom(wrench) + wp.cross(arm, force))


@wp.func
def add_to_bodies(
    world: int,
    geoms: wp.vec2i,
    force: wp.vec3,
    geom_bodyid: wp.array[wp.int32],
    row_of_body: wp.array[wp.int32],
    out: wp.array2d[wp.float32],
):
    """Add a contact's force to the second geom's body, and its opposite to the first geom's.

    ``row_of_body`` is -1 for bodies without a row, such as the world.
    """
    for side in range(2):
        row = row_of_body[geom_bodyid[geoms[side]]]
        if row >= 0:
            for i in range(3):
                wp.atomic_add(out, world, 3 * row + i, (2.0 * float(side) - 1.0) * force[i])


@wp.kernel(enable_backward=False)
def add_contact_forces(
    nacon: wp.array[wp.int32],
    worldid: wp.array[wp.int32],
    geom: wp.array[wp.vec2i],
    geom_bodyid: wp.array[wp.int32],
    row_of_body: wp.array[wp.int32],
    wrench: wp.array[wp.spatial_vector],
    contact_forces: wp.array2d[wp.float32],
):
    """Add each contact's force to its two bodies, one thread per contact."""
    contact = wp.tid()
    if contact < nacon[0]:
        force = wp.spatial_top(wrench[contact])
        add_to_bodies(worldid[contact], geom[contact], force, geom_bodyid, row_of_body, contact_forces)


@wp.kernel(enable_backward=False)
def add_contact_forces_in_order(
    nefc: wp.array[wp.int32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    address: wp.array2d[wp.int32],
    geom: wp.array[wp.vec2i],
    geom_bodyid: wp.array[wp.int32],
    row_of_body: wp.array[wp.int32],
    wrench: wp.array[wp.spatial_vector],
    contact_forces: wp.array2d[wp.float32],
):
    """Add the forces of each world's contacts in the order of their rows, one thread per world.

    As ``add_contact_forces``; contacts without rows have no force.
    """
    env = wp.tid()
    for row in range(wp.min(nefc[env], kind.shape[1])):
        contact = contact_at(kind, ident, address, env, row)
        if contact >= 0:
            force = wp.spatial_top(wrench[contact])
            add_to_bodies(env, geom[contact], force, geom_bodyid, row_of_body, contact_forces)
