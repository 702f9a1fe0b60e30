"""The interface of physics engines: what ``gymapi`` needs of them, as tensors of fixed shape and place."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mujoco_batches.engine.layout import Layout


class Engine(ABC):
    """``num_envs`` copies of one layout, stepped together.

    Tensors are float32 on ``device``; quaternions are xyzw; positions and forces are in the environment's own frame.
    Rows of actors, bodies and DOFs are numbered over all environments: by environment, then in the order of the layout.
    Velocities of roots and bodies are those of the centre of mass.

    ``read`` returns roots and DOFs as they were written last. Its other quantities are those of the end of the last
    ``step``, also after later writes, as in Isaac Gym.

    Attributes:
        position_targets, velocity_targets, efforts: ``(num_envs, num_dofs)`` commands, applied according to each DOF's
            drive mode. ``step`` zeroes the efforts and keeps the targets.
        forces: ``(num_envs, num_bodies, 6)`` force on each body's centre of mass, and torque; ``step`` zeroes them.
        joint_forces: None, or ``(num_envs, num_dofs)`` forces on the joints beside their drives, which nothing limits;
            ``step`` keeps them.
        blown: ``(num_envs,)`` bool, whether the physics failed in the last ``step``; those environments were reset to
            their first state.
        blow_ups: number of such resets so far.
        dof_actors: ``(num_dofs,)`` int64, the actor of each DOF of an environment.
        keeps_velocities: whether there are ``accelerations``.
    """

    blow_ups: int
    keeps_velocities = False
    joint_forces: Tensor | None = None
    _properties: Any

    def __init__(self, layout: Layout, poses: np.ndarray, device: torch.device) -> None:
        """Allocate what all engines have, for the actors' ``poses`` at the start, ``(num_envs, actors, 7)``."""
        self._layout, self.device = layout, device
        self.num_envs, self.num_actors = poses.shape[:2]
        self.num_bodies, self.num_dofs = len(layout.bodies), len(layout.dof_qpos)
        n = self.num_envs
        self.position_targets, self.velocity_targets, self.efforts = (
            torch.zeros(n, self.num_dofs, device=device) for _ in range(3)
        )
        self.forces = torch.zeros(n, self.num_bodies, 6, device=device)
        self.blown = torch.zeros(n, dtype=torch.bool, device=device)
        self.dof_actors = torch.from_numpy(layout.dof_actors).to(device)

    @property
    def bytes_per_env(self) -> int:
        """Approximate memory of an environment, without what the model has once."""
        return 64 * 1024 + 200 * self._layout.model.nv**2

    # properties: the values act from the next step on

    def _before_change(self) -> None:  # noqa: B027
        """Finish what needs the present properties."""

    def set_dof_properties(self, env: int | None, dofs: slice, properties: np.ndarray) -> None:
        """Set drives, limits and armature of the DOFs ``dofs``.

        Args:
            env: the environment, or None for all.
            dofs: of an environment.
            properties: ``DOF_PROPERTIES`` of the DOFs, ``(rows,)``, or ``(num_envs, rows)`` if ``env`` is None.
        """
        self._before_change()
        self._properties.set_dofs(env, dofs, properties)

    def set_model_fields(self, env: int, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Set rows of fields of MuJoCo's model in one environment: ``{field: (ids, values)}``.

        Constants that MuJoCo derives from them are updated. Fields are ``body_mass``, ``body_ipos``, ``body_inertia``,
        ``body_iquat``, ``geom_friction``, ``pair_friction``, ``tendon_damping``, ``tendon_stiffness``, ``geom_size``,
        ``geom_pos``, ``geom_quat``, ``geom_rbound``, ``geom_aabb``, ``body_pos``, ``body_quat``, ``jnt_pos``,
        ``jnt_axis`` and ``eq_data``.
        """
        self._before_change()
        self._properties.set_fields(env, fields)

    def set_gravity(self, gravity: np.ndarray) -> None:
        """Set the gravity, m/s^2: ``(3,)`` of all environments, or ``(num_envs, 3)``."""
        self._before_change()
        self._properties.set_gravity(gravity)

    @abstractmethod
    def step(self) -> None:
        """Advance by one ``simulate``."""

    @abstractmethod
    def take_overflows(self) -> Tensor:
        """Return where contacts or constraint rows were dropped since the last call: ``(num_envs,)`` bool.

        There was no room for them. Steps in which the physics failed do not count.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Let ``read`` return the bodies' states as roots and DOFs were written since the last ``step``."""

    def contacts(self, number: int) -> Tensor:
        """Return the contacts of the last substep on the body of a contact list of the layout, the strongest first.

        Returns:
            ``(num_envs, slots, 6)``: the force in the contact's frame, normal first, and the normal, out of the body;
            with points 12, then the point and the first tangent. The body exerts this force. Slots without a contact
            are zero.

        Raises:
            NotImplementedError: the engine has no lists of contacts.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lists of contacts")

    @abstractmethod
    def normal_forces(self) -> Tensor:
        """Return the net normal forces of the last substep on bodies with a contact list without ``other``.

        Returns:
            ``(num_envs, num_bodies, 3)``; zero for other bodies.
        """

    @abstractmethod
    def joint_wrenches(self) -> Tensor:
        """Return what the parent exerts on each body at the body's origin, force and torque, in the body's frame.

        It is that of the last step, ``(num_envs, num_bodies, 6)``, and zero until the first step after the first call.
        """

    def accelerations(self) -> Tensor:
        """Return the change of the bodies' velocities in the last substep by its duration.

        Returns:
            ``(num_envs, num_bodies, 6)``, linear of the centre of mass and angular.

        Raises:
            NotImplementedError: the engine does not keep the velocities with which a substep begins.
        """
        raise NotImplementedError(f"{type(self).__name__} does not keep the velocities with which a substep begins")

    @abstractmethod
    def write_roots(self, mask: Tensor | None, states: Tensor) -> None:
        """Set roots from ``(num_envs * num_actors, 13)``; of fixed roots, the pose.

        Args:
            mask: bool, one element per actor; None for all actors.
        """

    @abstractmethod
    def write_dofs(self, mask: Tensor | None, states: Tensor) -> None:
        """Set all DOFs of the masked actors from ``(num_envs * num_dofs, 2)``."""

    def write_commands(self, held: Tensor, mask: Tensor | None, values: Tensor) -> None:
        """Set the DOFs of the masked actors in ``position_targets``, ``velocity_targets`` or ``efforts``."""
        values = values.detach().reshape(held.shape)
        if mask is None:
            held.copy_(values)
        else:
            torch.where(mask[:, self.dof_actors], values, held, out=held)

    def _all_actors(self) -> Tensor:
        return torch.ones(self.num_envs, self.num_actors, dtype=torch.bool, device=self.device)

    @abstractmethod
    def actor_mask(self, rows: Tensor) -> Tensor:
        """Return ``(num_envs, num_actors)`` bool, True for the actors ``rows`` ``(n,)`` int32; it must not wait.

        Rows out of range are ignored.
        """

    def tensor(self, quantity: str, actor: int = -1) -> Tensor:
        """Return a new tensor with the present values of a quantity.

        Args:
            quantity: ``roots`` ``(num_envs * num_actors, 13)``, ``dofs`` ``(num_envs * num_dofs, 2)``, ``bodies``
                ``(num_envs * num_bodies, 13)``, their ``centres`` of mass and ``contact_forces``, the net ones of the
                last substep, ``(num_envs * num_bodies, 3)``; the drives' ``dof_forces`` ``(num_envs * num_dofs,)``,
                ``force_sensors`` ``(num_envs * sensors, 6)``; of one actor, ``jacobian`` ``(num_envs, links, 6, dofs)``
                and ``mass_matrix`` ``(num_envs, dofs, dofs)``. A Jacobian does not have a fixed root as a
                link; with a free root it begins with 6 more columns.
            actor: the actor of a Jacobian or a mass matrix.
        """
        bodies, sensors = self.num_bodies, len(self._layout.sensors)
        rows = {
            **{"roots": (self.num_actors, 13), "dofs": (self.num_dofs, 2), "bodies": (bodies, 13)},
            **{"centres": (bodies, 3), "contact_forces": (bodies, 3), "dof_forces": (self.num_dofs,)},
            "force_sensors": (sensors, 6),
        }
        if quantity in rows:
            count, *width = rows[quantity]
            shape = [self.num_envs * count, *width]
        else:
            # quantities of one actor
            links, columns, _ = self._layout.structure(actor)
            free = 0 if self._layout.places[actor].fixed else 6
            dofs = len(columns)
            shape = [self.num_envs, *((len(links), 6, free + dofs) if quantity == "jacobian" else (dofs, dofs))]
        out = torch.zeros(*shape, device=self.device)
        self.read(quantity, out, actor)
        return out

    def root_poses(self, actor: int) -> Tensor:
        """Return a new tensor with the poses of an actor's root, ``(num_envs, 7)``."""
        return self.tensor("roots").view(self.num_envs, -1, 13)[:, actor, :7]

    def root_velocities(self, actor: int) -> Tensor:
        """Return a new tensor with the velocities of an actor's root, ``(num_envs, 6)``."""
        return self.tensor("roots").view(self.num_envs, -1, 13)[:, actor, 7:]

    def dof_states(self, part: int) -> Tensor:
        """Return a new tensor with the positions of all DOFs, 0, or their velocities, 1, ``(num_envs, num_dofs)``."""
        return self.tensor("dofs").view(self.num_envs, -1, 2)[..., part]

    @abstractmethod
    def read(self, quantity: str, out: Tensor, actor: int = -1) -> None:
        """Fill a tensor that ``tensor`` returned for this quantity."""

    @abstractmethod
    def get_state(self) -> dict[str, Tensor]:
        """Return a copy on the CPU of all that ``set_state`` needs to continue as if uninterrupted.

        Properties of the environments (masses, drives, friction) are not included.
        """

    @abstractmethod
    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state that ``get_state`` returned, of an engine with equal environments."""
