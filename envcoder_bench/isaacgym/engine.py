"""What a physics engine must do for the tensor interface: the contract of the CPU engine and of the CUDA one."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor


class Engine(ABC):
    """``num_envs`` copies of one layout, stepped together.

    Tensors are float32 on ``device``, quaternions xyzw, positions and forces in the environment's own frame (no
    spacing). Rows of actors, bodies and DOFs are numbered over all environments: environment first, then the order
    of the layout. Velocities of roots and bodies are those of the centre of mass.

    ``read_roots`` and ``read_dofs`` show what was written last. Everything else shows the end of the last ``step``,
    whatever was written since: Isaac Gym's tensors are stale in the same way.

    Attributes:
        position_targets, velocity_targets, efforts: ``(num_envs, num_dofs)``, applied by ``step`` as each DOF's mode
            says. ``step`` zeroes the efforts and keeps the targets.
        forces: ``(num_envs, num_bodies, 6)`` force and torque on each body about its centre of mass; ``step`` zeroes
            them.
        blow_ups: number of environments so far that were put back to their first state because the physics failed.
        blown: ``(num_envs,)`` bool, those of the last ``step``.
        dof_actors: ``(num_dofs,)`` int64, the actor of each DOF of an environment.
    """

    num_envs: int
    num_actors: int
    num_bodies: int
    num_dofs: int
    device: torch.device
    position_targets: Tensor
    velocity_targets: Tensor
    efforts: Tensor
    forces: Tensor
    blow_ups: int
    blown: Tensor
    dof_actors: Tensor

    @abstractmethod
    def set_dof_properties(self, env: int | None, dofs: slice, properties: np.ndarray) -> None:
        """Set drives, limits and armature: a structured array of rows of ``dofs``, or ``(num_envs, rows)`` for all."""

    @abstractmethod
    def set_body_mass(self, env: int, body: int, mass: float, com: np.ndarray, inertia: np.ndarray) -> None:
        """Set a body's mass, centre ``(3,)`` and ``(3, 3)`` inertia in one environment."""

    @abstractmethod
    def set_friction(self, env: int, actor: int, friction: np.ndarray) -> None:
        """Set the friction of an actor's shapes in one environment; it acts in contacts within the actor."""

    def set_model_fields(self, env: int, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Set rows of fields of MuJoCo's model in one environment: ``{field: (ids, values)}``.

        They act from the next ``step`` on; constants that MuJoCo derives from them follow. The fields are
        ``pair_friction``, ``tendon_damping``, ``tendon_stiffness``, ``geom_size``, ``geom_pos``, ``geom_quat``,
        ``geom_rbound``, ``geom_aabb``, ``body_pos``, ``body_quat``, ``jnt_pos`` and ``jnt_axis``.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot change {', '.join(fields)} in single environments")

    def set_gravity(self, gravity: np.ndarray) -> None:
        """Set the gravity ``(3,)``, m/s^2, of all environments."""
        raise NotImplementedError(f"{type(self).__name__} cannot change the gravity")

    @abstractmethod
    def step(self) -> None:
        """Advance by one ``simulate``."""

    @abstractmethod
    def write_roots_masked(self, mask: Tensor, states: Tensor) -> None:
        """Set the roots where ``mask`` is True from ``(num_envs * num_actors, 13)``; a fixed one takes the pose alone.

        ``mask`` is bool, of an element for each actor.
        """

    @abstractmethod
    def write_dofs_masked(self, mask: Tensor, states: Tensor) -> None:
        """Set all DOFs of the actors where ``mask`` is True from ``(num_envs * num_dofs, 2)``."""

    def write_roots(self, rows: Tensor, states: Tensor) -> None:
        """Set the roots of the actors ``rows`` ``(n,)`` from ``(num_envs * num_actors, 13)``."""
        self.write_roots_masked(self.actor_mask(rows), states)

    def write_dofs(self, rows: Tensor, states: Tensor) -> None:
        """Set all DOFs of the actors ``rows`` ``(n,)`` from ``(num_envs * num_dofs, 2)``."""
        self.write_dofs_masked(self.actor_mask(rows), states)

    def write_commands(self, held: Tensor, rows: Tensor, values: Tensor) -> None:
        """Set the DOFs of the actors ``rows`` ``(n,)`` in ``position_targets``, ``velocity_targets`` or ``efforts``."""
        torch.where(self.actor_mask(rows)[:, self.dof_actors], values.view(held.shape), held, out=held)

    def actor_mask(self, rows: Tensor) -> Tensor:
        """Return ``(num_envs, num_actors)`` bool, True for the actors ``rows``; rows that are no actor's are ignored.

        Nothing waits for the device.
        """
        count = self.num_envs * self.num_actors
        mask = torch.zeros(count + 1, dtype=torch.bool, device=self.device)  # the last takes what is no actor's
        rows = torch.where((rows >= 0) & (rows < count), rows, count)
        return mask.index_fill_(0, rows.long(), True)[:count].view(self.num_envs, self.num_actors)

    @abstractmethod
    def read_roots(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_actors, 13)``."""

    @abstractmethod
    def read_dofs(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_dofs, 2)``."""

    @abstractmethod
    def read_bodies(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_bodies, 13)``."""

    @abstractmethod
    def read_contact_forces(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_bodies, 3)`` with the net contact force of the last substep."""

    @abstractmethod
    def read_dof_forces(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_dofs,)`` with the drives' forces of the last substep."""

    @abstractmethod
    def read_force_sensors(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_sensors, 6)``: net force and torque on the sensor's body, in the sensor's frame."""

    @abstractmethod
    def read_jacobian(self, actor: int, out: Tensor) -> None:
        """Fill ``(num_envs, links, 6, num_dofs)``: of each link but a fixed root, at its centre of mass."""

    @abstractmethod
    def read_mass_matrix(self, actor: int, out: Tensor) -> None:
        """Fill ``(num_envs, dofs, dofs)``: the actor's joint-space inertia, armature included."""

    def get_state(self) -> dict[str, Tensor]:
        """Copy everything on the CPU that a later ``set_state`` needs to go on as if uninterrupted.

        What describes the environments (masses, drives, friction) is not in it.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot save its state")

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Take up what ``get_state`` returned, of an engine with equal environments."""
        raise NotImplementedError(f"{type(self).__name__} cannot restore a state")
