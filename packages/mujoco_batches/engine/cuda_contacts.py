"""Contacts of MuJoCo Warp's worlds as the layout's contact lists ask for them, without MuJoCo Warp's own sensors."""

# Warp compiles the kernels; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false

from typing import Any

import numpy as np
import warp as wp

from mujoco_batches.engine.layout import Layout
from mujoco_batches.physics.warp_contacts import ContactForces, add_to_bodies, contact_at

NONE = wp.constant(-2)
# columns of a list's row: MuJoCo's body, the other body or NONE, the other geom or NONE, first number, slots, width
BODY, OTHER_BODY, OTHER_GEOM, FIRST, SLOTS, WIDTH = (wp.constant(column) for column in range(6))


class ContactLists:
    """Net normal forces of all bodies, and lists of contacts with a certain other body or ground.

    It must be created and used within Warp's scope of the device.

    Args:
        forces: whose ``wrench`` is that of the last substep.
        row_of_body: ``(nbody,)`` the row of each body in ``normal_forces``, -1 for bodies without one.

    Attributes:
        normal_forces: ``(num_envs, 3 * rows)`` on the bodies.
        lists: ``(num_envs, numbers)``, of the lists with another body, one after the other; ``starts`` are their first
            numbers, by their number in the layout.
    """

    def __init__(self, model: Any, data: Any, layout: Layout, forces: ContactForces, row_of_body: np.ndarray) -> None:
        self._model, self._data, self._forces = model, data, forces
        self._row_of_body = wp.array(row_of_body, dtype=wp.int32)
        self.normal_forces = wp.zeros((data.nworld, 3 * len(layout.bodies)), dtype=wp.float32)
        self.starts: dict[int, int] = {}
        rows, size, grounds = [], 0, layout.ground_geoms
        for number, wanted in enumerate(layout.contact_lists):
            if wanted.other is None:
                continue
            ground = wanted.other < 0
            body = -2 if ground else int(layout.bodies[wanted.other])
            geom = grounds[-1 - wanted.other] if ground else -2
            rows.append([int(layout.bodies[wanted.body]), body, geom, size, wanted.slots, 12 if wanted.points else 6])
            self.starts[number] = size
            size += wanted.size
        self._rows = wp.array(np.array(rows, dtype=np.int32).reshape(-1, 6), dtype=wp.int32)
        self.lists = wp.zeros((data.nworld, size), dtype=wp.float32)

    def update(self) -> None:
        """Launch the computation from the contacts of the last substep."""
        contact, geom_bodyid, wrench = self._data.contact, self._model.geom_bodyid, self._forces.wrench
        self.normal_forces.zero_()
        parts = [self._data.nacon, contact.worldid, contact.geom, contact.frame, geom_bodyid, self._row_of_body, wrench]
        wp.launch(add_normal_forces, dim=self._data.naconmax, inputs=parts, outputs=[self.normal_forces])
        if self._rows.shape[0]:
            self.lists.zero_()
            efc = [self._data.nefc, self._data.efc.type, self._data.efc.id, contact.efc_address]
            parts = [*efc, contact.geom, contact.frame, contact.pos, geom_bodyid, wrench, self._rows]
            wp.launch(list_contacts, dim=(self._data.nworld, len(self.starts)), inputs=parts, outputs=[self.lists])


@wp.kernel(enable_backward=False)
def add_normal_forces(
    nacon: wp.array[wp.int32],
    worldid: wp.array[wp.int32],
    geom: wp.array[wp.vec2i],
    frame: wp.array[wp.mat33],
    geom_bodyid: wp.array[wp.int32],
    row_of_body: wp.array[wp.int32],
    wrench: wp.array[wp.spatial_vector],
    out: wp.array2d[wp.float32],
):
    """Add each contact's normal force to its two bodies, one thread per contact."""
    contact = wp.tid()
    if contact < nacon[0]:
        normal = frame[contact][0]
        force = wp.dot(wp.spatial_top(wrench[contact]), normal) * normal
        add_to_bodies(worldid[contact], geom[contact], force, geom_bodyid, row_of_body, out)


@wp.kernel(enable_backward=False)
def list_contacts(
    nefc: wp.array[wp.int32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    address: wp.array2d[wp.int32],
    geom: wp.array[wp.vec2i],
    frame: wp.array[wp.mat33],
    pos: wp.array[wp.vec3],
    geom_bodyid: wp.array[wp.int32],
    wrench: wp.array[wp.spatial_vector],
    rows: wp.array2d[wp.int32],
    out: wp.array2d[wp.float32],
):
    """Fill a list with its contacts, the strongest first, one thread per world and list.

    Contacts without a constraint row have no force. Numbers of a contact are those of ``Engine.contacts``: the body
    exerts the force, and the normal points out of it.
    """
    world, row = wp.tid()
    body, slots, width, start = rows[row, BODY], rows[row, SLOTS], rows[row, WIDTH], rows[row, FIRST]
    count = wp.int32(0)
    for efc in range(wp.min(nefc[world], kind.shape[1])):
        contact = contact_at(kind, ident, address, world, efc)
        if contact < 0:
            continue
        side = wp.int32(-1)
        for k in range(2):
            other = geom[contact][1 - k]
            wanted = geom_bodyid[other] == rows[row, OTHER_BODY] or other == rows[row, OTHER_GEOM]
            if geom_bodyid[geom[contact][k]] == body and wanted:
                side = k
        if side < 0:
            continue
        sign = 1.0 - 2.0 * float(side)  # the normal points from the first geom to the second
        force = frame[contact] * wp.spatial_top(wrench[contact])
        # behind those that are as strong; the weakest falls out
        place = count
        while place > 0 and out[world, start + (place - 1) * width] < force[0]:
            place -= 1
        if place >= slots:
            continue
        last = wp.min(count, slots - 1)
        while last > place:
            for i in range(width):
                out[world, start + last * width + i] = out[world, start + (last - 1) * width + i]
            last -= 1
        count = wp.min(count + 1, slots)
        at = start + place * width
        for i in range(3):
            out[world, at + i] = force[i]
            out[world, at + 3 + i] = sign * frame[contact][0, i]
            if width == 12:
                out[world, at + 6 + i] = pos[contact][i]
                out[world, at + 9 + i] = sign * frame[contact][1, i]
        out[world, at + 2] = sign * force[2]
