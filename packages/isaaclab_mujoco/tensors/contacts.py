"""``omni.physics.tensors.RigidContactView``: contact forces of bodies, of all contacts and by what they touch."""

import torch
from torch import Tensor

from isaaclab_mujoco.errors import NotSupported
from isaaclab_mujoco.tensors.bodies import RigidBodyView
from isaaclab_mujoco.tensors.physics import Physics


class RigidContactView(RigidBodyView):
    """Contacts of bodies in the last step. Net forces and those by filters are normal forces, as PhysX's.

    Attributes:
        filter_count: bodies and grounds that match the filters.
    """

    def __init__(self, physics: Physics, pattern: str, filter_patterns: list[str]) -> None:
        super().__init__(physics, pattern)
        self._filters = [other for one in filter_patterns for other in physics.others(one)]
        if filter_patterns and not self._filters:
            raise NotSupported(f"{', '.join(filter_patterns)}: the filters of {pattern} match no body and no ground")
        self.filter_count = len(self._filters)
        wanted = [(row, other) for row in self.rows for other in (None, *self._filters)]
        if any(pair not in physics.contacts for pair in wanted):
            raise NotSupported(f"{pattern}: make a ContactSensor for these bodies before the simulation starts")

    def get_net_contact_forces(self, dt: float) -> Tensor:
        """Return the sum of the normal forces on each body, ``(count, 3)``."""
        return self.physics.engine.normal_forces()[:, self._index].view(self.count, 3)

    def get_contact_force_matrix(self, dt: float) -> Tensor:
        """Return the normal forces by what the body touches, ``(count, filter_count, 3)``."""
        contacts = self._by_filter()  # the body exerts these forces
        return -(contacts[..., :1] * contacts[..., 3:6]).sum(dim=-2).view(self.count, self.filter_count, 3)

    def get_contact_data(self, dt: float) -> tuple[Tensor, ...]:
        """Return the contacts of all bodies and filters: forces, points, normals, separations, counts and starts."""
        contacts, counts, starts = self._listed()
        separations = contacts.new_zeros(len(contacts), 1)
        return contacts[:, :1], contacts[:, 6:9], -contacts[:, 3:6], separations, counts, starts

    def get_friction_data(self, dt: float) -> tuple[Tensor, ...]:
        """Return the contacts of all bodies and filters: friction forces on the body, points, counts and starts."""
        contacts, counts, starts = self._listed()
        first, normal = contacts[:, 9:12], contacts[:, 3:6]
        second = torch.linalg.cross(normal, first)
        return -(contacts[:, 1:2] * first + contacts[:, 2:3] * second), contacts[:, 6:9], counts, starts

    def _by_filter(self) -> Tensor:
        """Return ``(num_envs, bodies, filter_count, slots, 12)``."""
        lists, engine = self.physics.contacts, self.physics.engine
        rows = [torch.stack([engine.contacts(lists[row, other]) for other in self._filters], 1) for row in self.rows]
        return torch.stack(rows, dim=1)

    def _listed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the contacts ``(n, 12)`` one after the other, and counts and starts ``(count, filter_count)``."""
        contacts = self._by_filter().view(self.count, self.filter_count, -1, 12)
        touching = contacts[..., 0] > 0
        counts = touching.sum(dim=-1)
        starts = counts.flatten().cumsum(0).view_as(counts) - counts
        return contacts[touching], counts, starts
