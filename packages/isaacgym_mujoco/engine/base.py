"""The interface of physics engines: what ``gymapi`` needs of them, as tensors of fixed shape and place."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor


class Engine(ABC):
    """``num_envs`` copies of one layout, stepped together.

    Tensors are float32 on ``device``; quaternions are xyzw; positions and forces are in the environment's own frame.
    Rows of actors, bodies and DOFs are numbered over all environments: by environment, then in the order of the layout.
    Velocities of roots and bodies are those of the centre of mass.

    ``read_roots`` and ``read_dofs`` return what was written last. The other readers return values of the end of the
    last ``step``, also after later writes, as in Isaac Gym.

    Attributes:
        position_targets, velocity_targets, efforts: ``(num_envs, num_dofs)`` commands, applied according to each DOF's
            drive mode. ``step`` zeroes the efforts and keeps the targets.
        forces: ``(num_envs, num_bodies, 6)`` force on each body's centre of mass, and torque; ``step`` zeroes them.
        blown: ``(num_envs,)`` bool, whether the physics failed in the last ``step``; those environments were reset to
            their first state.
        blow_ups: number of such resets so far.
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
        """Set drives, limits and armature of the DOFs ``dofs``.

        Args:
            env: the environment, or None for all.
            dofs: of an environment.
            properties: ``DOF_PROPERTIES`` of the DOFs, ``(rows,)``, or ``(num_envs, rows)`` if ``env`` is None.
        """

    @abstractmethod
    def set_body_mass(self, env: int, body: int, mass: float, com: np.ndarray, inertia: np.ndarray) -> None:
        """Set a body's mass, kg, centre of mass ``(3,)``, m, and inertia ``(3, 3)``, kg m^2, in one environment."""

    @abstractmethod
    def set_friction(self, env: int, actor: int, friction: np.ndarray) -> None:
        """Set the friction of an actor's shapes in one environment, for contacts between shapes of the actor."""

    @abstractmethod
    def set_model_fields(self, env: int, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Set rows of fields of MuJoCo's model in one environment: ``{field: (ids, values)}``.

        The values act from the next ``step`` on, and constants that MuJoCo derives from them are updated. Fields are
        ``pair_friction``, ``tendon_damping``, ``tendon_stiffness``, ``geom_size``, ``geom_pos``, ``geom_quat``,
        ``geom_rbound``, ``geom_aabb``, ``body_pos``, ``body_quat``, ``jnt_pos``, ``jnt_axis`` and ``eq_data``.
        """

    @abstractmethod
    def set_gravity(self, gravity: np.ndarray) -> None:
        """Set the gravity, m/s^2: ``(3,)`` of all environments, or ``(num_envs, 3)``."""

    @abstractmethod
    def step(self) -> None:
        """Advance by one ``simulate``."""

    @abstractmethod
    def write_roots_masked(self, mask: Tensor, states: Tensor) -> None:
        """Set roots from ``(num_envs * num_actors, 13)``; of fixed roots, the pose.

        Args:
            mask: bool, one element per actor.
        """

    @abstractmethod
    def write_dofs_masked(self, mask: Tensor, states: Tensor) -> None:
        """Set all DOFs of the masked actors from ``(num_envs * num_dofs, 2)``."""

    def write_roots(self, rows: Tensor, states: Tensor) -> None:
        """Set the roots of the actors ``rows`` ``(n,)`` from ``(num_envs * num_actors, 13)``."""
        self.write_roots_masked(self.actor_mask(rows), states)

    def write_dofs(self, rows: Tensor, states: Tensor) -> None:
        """Set all DOFs of the actors ``rows`` ``(n,)`` from ``(num_envs * num_dofs, 2)``."""
        self.write_dofs_masked(self.actor_mask(rows), states)

    def write_commands(self, held: Tensor, rows: Tensor, values: Tensor) -> None:
        """Set the DOFs of the actors ``rows`` ``(n,)`` in ``position_targets``, ``velocity_targets`` or ``efforts``."""
        torch.where(self.actor_mask(rows)[:, self.dof_actors], values.view(held.shape), held, out=held)

    @abstractmethod
    def actor_mask(self, rows: Tensor) -> Tensor:
        """Return ``(num_envs, num_actors)`` bool, True for the actors ``rows`` ``(n,)`` int32; it must not wait.

        Rows out of range are ignored.
        """

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
    def read_centres(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_bodies, 3)`` with the positions of the centres of mass."""

    @abstractmethod
    def read_contact_forces(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_bodies, 3)`` with the net contact force of the last substep."""

    @abstractmethod
    def read_dof_forces(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_dofs,)`` with the drives' forces of the last substep."""

    @abstractmethod
    def read_force_sensors(self, out: Tensor) -> None:
        """Fill ``(num_envs * num_sensors, 6)`` with net force and torque on the body, in the sensor's frame."""

    @abstractmethod
    def read_jacobian(self, actor: int, out: Tensor) -> None:
        """Fill ``(num_envs, links, 6, dofs)`` for all links except a fixed root, at their centres of mass.

        Rows are the linear and the angular velocity. A free base has 6 more columns before the DOFs: the linear
        velocity of its centre of mass, and its angular one, in the environment's frame.
        """

    @abstractmethod
    def read_mass_matrix(self, actor: int, out: Tensor) -> None:
        """Fill ``(num_envs, dofs, dofs)`` with the actor's joint-space inertia, without armature, as PhysX's."""

    @abstractmethod
    def get_state(self) -> dict[str, Tensor]:
        """Return a copy on the CPU of all that ``set_state`` needs to continue as if uninterrupted.

        Properties of the environments (masses, drives, friction) are not included.
        """

    @abstractmethod
    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state that ``get_state`` returned, of an engine with equal environments."""
