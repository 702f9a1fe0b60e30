"""Net contact forces of MuJoCo Warp's worlds, without its contact sensors, which sort every world's contacts."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import mujoco_warp as mjw
import numpy as np
import warp as wp

from envcoder_bench.sim.warp_functions import add_contact_forces
from envcoder_bench.sim.warp_order_kernels import add_contact_forces_in_order


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
        mjw.contact_force(model, data, self._ids, True, self.wrench)  # pyright: ignore[reportArgumentType]
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
