"""A simulator of free joints: small enough to predict by hand."""

from collections.abc import Sequence

import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator

FORCES = ("dof_force", "contact_forces", "sensor_forces")
TENSORS = ("root_states", "dof_pos", "dof_vel", *FORCES, "object_states", "unstable", "contact_overflows")


class FakeSimulator(Simulator):
    """Unit inertias: each joint's velocity grows by ``command * dt``; nothing touches anything."""

    bytes_per_env = 0

    def __init__(
        self,
        num_envs: int,
        dof_names: Sequence[str],
        body_names: Sequence[str],
        sensor_names: Sequence[str] = (),
        dt: float = 0.02,
        object_names: Sequence[str] = (),
        site_names: Sequence[str] = (),
    ) -> None:
        self.num_envs, self.device, self.dt = num_envs, torch.device("cpu"), dt
        self.dof_names, self.body_names, self.sensor_names = list(dof_names), list(body_names), list(sensor_names)
        self.object_names, self.site_names = list(object_names), list(site_names)
        self.dof_limits_lower, self.dof_limits_upper = (torch.full((len(dof_names),), x) for x in (-1.0, 1.0))
        self.floating = True
        self.effort_limits = torch.arange(1.0, len(dof_names) + 1.0)
        self.drive_gains = {name: torch.ones(len(dof_names)) for name in ("stiffness", "damping")}
        self.root_states = torch.zeros(num_envs, 13)
        self.root_states[:, 6] = 1.0
        self.dof_pos, self.dof_vel, self.dof_force = (torch.zeros(num_envs, len(dof_names)) for _ in range(3))
        self.contact_forces = torch.zeros(num_envs, len(body_names), 3)
        self.sensor_forces = torch.zeros(num_envs, len(sensor_names), 6)
        self.object_states = torch.zeros(num_envs, len(object_names), 13)
        self.site_states = torch.zeros(num_envs, len(site_names), 13)
        self.object_states[:, :, 6] = self.site_states[:, :, 6] = 1.0
        self.jacobian = torch.eye(6, len(dof_names)).repeat(num_envs, 1, 1)
        self.mass_matrix = torch.eye(len(dof_names)).repeat(num_envs, 1, 1)
        self.unstable = torch.zeros(num_envs, dtype=torch.bool)
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32)
        self.engine_warnings: dict[str, int] = {}
        self.body_masses, self.base = torch.ones(len(body_names)), 0
        self.effort: Tensor | None = None
        self.forces: Tensor | None = None

    def set_drive_mode(self, effort: Tensor) -> None:
        self.effort = effort

    def apply_forces(self, forces: Tensor) -> None:
        self.forces = forces.clone()

    def step(self, command: Tensor) -> None:
        self.dof_force.copy_(command)
        self.dof_vel += self.dt * command
        self.dof_pos += self.dt * self.dof_vel

    def write(
        self,
        mask: Tensor,
        root_states: Tensor | None = None,
        dof_pos: Tensor | None = None,
        dof_vel: Tensor | None = None,
        object_states: Tensor | None = None,
    ) -> None:
        own = (self.root_states, self.dof_pos, self.dof_vel, self.object_states)
        for live, new in zip(own, (root_states, dof_pos, dof_vel, object_states)):
            if new is not None:
                live[mask] = new[mask]

    def get_state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).clone() for name in TENSORS}

    def set_state(self, state: dict[str, Tensor]) -> None:
        for name in TENSORS:
            getattr(self, name).copy_(state[name])
