"""The interface of simulators.

Both MuJoCo backends implement the interface, and one conformance suite tests it, ``tests/sim/test_conformance.py``.
``CONTRIBUTING.md`` lists where a new one is registered.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# gains of position drives: one number, or one for each actuator; None keeps the file's
Gains = float | Sequence[float] | None
# MuJoCo's integrators without RK4, whose contact forces would belong to one of its four stages
INTEGRATORS = ("Euler", "implicit", "implicitfast", "discrete")


@dataclass(frozen=True)
class Variation:
    """How each environment's model differs from the file's, ``(num_envs,)`` each, on the CPU.

    Attributes:
        friction: sliding friction of all contacts; NaN keeps the model's.
        mass: factor of the base's mass and inertia.
        com: shift of the base's centre of mass along its x axis, m.
        strength: factor of all efforts of the actuators and of their limits.
        gains: factor of the position drives' stiffness and damping.
    """

    friction: Tensor
    mass: Tensor
    com: Tensor
    strength: Tensor
    gains: Tensor


class Robot(ABC):
    """A robot in ``num_envs`` environments that can be disturbed and watched. Tensors as ``Simulator`` has them.

    Attributes:
        floating: whether the robot has a free joint.
        body_names: its bodies; ``body_masses`` ``(num_bodies,)`` kg, on the CPU.
        base: the index in ``body_names`` of the robot's first body, or without a free joint of its heaviest one.
        feet: indices of the bodies that are feet; None if it does not say.
        dof_limits_lower, dof_limits_upper: ``(num_dofs,)`` range of each joint, rad or m, on the CPU; infinite if it
            has no limits.
        effort_limits: ``(num_dofs,)`` largest effort of each joint's actuator, N m or N, on the CPU; 0 where passive.
        velocity_limits: ``(num_dofs,)`` of the joints, rad/s or m/s, on the CPU; None if the model has none.
        root_states, dof_pos, dof_vel, dof_force, contact_forces: the state after the last ``step``.
        sensors: columns of each quantity whose errors ``measure`` takes; empty if the task's state has the quantities.
        notes: lines on disturbances that it does not meet.
    """

    floating: bool
    body_names: list[str]
    body_masses: Tensor
    base: int
    feet: Sequence[int] | None = None
    dof_limits_lower: Tensor
    dof_limits_upper: Tensor
    effort_limits: Tensor
    velocity_limits: Tensor | None = None
    root_states: Tensor
    dof_pos: Tensor
    dof_vel: Tensor
    dof_force: Tensor
    contact_forces: Tensor
    sensors: Mapping[str, int] = {}
    notes: Sequence[str] = ()

    @abstractmethod
    def apply_forces(self, forces: Tensor) -> None:
        """Apply ``forces`` ``(num_envs, num_bodies, 3)``, N, world frame, at the bodies' centres of mass.

        They hold in every later ``step`` until the next call; ``set_state`` may restore or keep them.
        """

    def vary(self, variation: Variation) -> None:
        """Give each environment a model of its own, before any ``step``; 1 as a factor and 0 as a shift keep it.

        Raises:
            ValueError: the simulator has one model for all environments.
        """
        raise ValueError(f"{type(self).__name__} has one model for all environments")

    def track(self, bodies: Sequence[int]) -> Callable[[], Tensor]:
        """Return what tells where the outermost collision shapes of bodies are, ``(num_envs, bodies, 3)``, m, world.

        They are at the beginning of the last physics step.

        Raises:
            ValueError: the simulator does not tell.
        """
        raise ValueError(f"{type(self).__name__} does not track bodies")

    def tilt(self, gravity: Tensor) -> bool:
        """Let observations see gravity in the directions ``(num_envs, 3)``; return whether any can."""
        return False

    def measure(self, errors: Mapping[str, Tensor], actions: Tensor) -> None:  # noqa: B027
        """Let what sensors measure err, by the quantities of ``sensors`` in SI units, until the next call.

        Args:
            errors: empty for none.
            actions: ``(num_envs, width)``, which policies have asked for; actions may come late.
        """

    def show_actions(self, actions: Tensor) -> None:  # noqa: B027
        """Let observations see ``actions`` ``(num_envs, width)`` as the last ones."""


class Simulator(Robot):
    """``num_envs`` copies of one robot and its free objects, stepped together.

    State tensors are float32, live and fixed in memory: views of them stay valid for the simulator's lifetime, and
    ``step``, ``write`` and ``set_state`` refresh them in place. World frame, SI units, quaternions xyzw. A simulator
    with a MuJoCo model can also have ``pose_source``, for pictures and videos, as ``MujocoCpu`` has.

    Attributes:
        num_envs, device, dt: environments; torch device; seconds per ``step`` (all its substeps).
        floating: whether the robot has a free joint.
        dof_names, body_names: actuated and passive joints with one degree of freedom, in the model's order; bodies
            without the world.
        sensor_names: the bodies with a force-torque sensor, usually feet.
        object_names: the free bodies that do not belong to the robot.
        site_names: points of interest on the robot, such as fingertips.
        dof_limits_lower, dof_limits_upper: ``(num_dofs,)`` range of each joint, rad or m, on the CPU; infinite if it
            has no limits.
        body_masses: ``(num_bodies,)`` kg, on the CPU.
        base: the index in ``body_names`` of the robot's first body, or without a free joint of its heaviest one.
        effort_limits: ``(num_dofs,)`` largest effort of each joint's actuator, N m or N, on the CPU; 0 where passive.
        drive_gains: ``stiffness`` and ``damping`` of the position drives, ``(num_dofs,)`` each, on the CPU; 0 without.
        root_states: ``(num_envs, 13)`` position 3, quaternion xyzw 4, linear velocity of the body origin 3, angular
            velocity 3, all world frame. A robot without a free joint has its fixed pose and zero velocity here.
        dof_pos, dof_vel: ``(num_envs, num_dofs)`` rad or m, and their rates.
        dof_force: ``(num_envs, num_dofs)`` N m or N that the actuators applied in the last substep (0 where passive).
        contact_forces: ``(num_envs, num_bodies, 3)`` net contact force on each body in the last substep, N.
        sensor_forces: ``(num_envs, num_sensors, 6)`` net contact force 3, N, and its torque about the body's origin 3,
            N m, on each body of ``sensor_names`` in the last substep, in the body's own frame.
        object_states: ``(num_envs, num_objects, 13)`` of each object, as ``root_states``.
        site_states: ``(num_envs, num_sites, 13)`` of each site, as ``root_states``.
        jacobian: ``(num_envs, 6, num_dofs)`` linear 3 and angular 3 velocity, world frame, of the model's Jacobian site
            for each joint's velocity; ``(num_envs, 0, num_dofs)`` without such a site.
        mass_matrix: ``(num_envs, num_dofs, num_dofs)`` joint-space inertia of the robot's joints, armature included,
            kg m^2 or kg; ``(num_envs, 0, num_dofs)`` without a Jacobian site.
        unstable: ``(num_envs,)`` bool, environments whose physics became unstable in the last ``step``, or for which
            ``write`` was given a state beyond the simulator's limits since or before that step. They are in the model's
            default state, so that every tensor is finite, and need a reset.
        contact_overflows: ``(num_envs,)`` int32, number of control steps in which the engine dropped contacts or
            constraint rows because a buffer was full, without steps that became unstable. If environments share a
            buffer, a step counts in all of them. ``step`` adds to it; the reader may reset it to 0.
        engine_warnings: number of the engine's warnings in all environments, by text.
    """

    num_envs: int
    device: torch.device
    dt: float
    floating: bool
    dof_names: list[str]
    body_names: list[str]
    sensor_names: list[str]
    object_names: list[str]
    site_names: list[str]
    dof_limits_lower: Tensor
    dof_limits_upper: Tensor
    body_masses: Tensor
    base: int
    effort_limits: Tensor
    drive_gains: dict[str, Tensor]
    root_states: Tensor
    dof_pos: Tensor
    dof_vel: Tensor
    dof_force: Tensor
    contact_forces: Tensor
    sensor_forces: Tensor
    object_states: Tensor
    site_states: Tensor
    jacobian: Tensor
    mass_matrix: Tensor
    unstable: Tensor
    contact_overflows: Tensor
    engine_warnings: dict[str, int]

    @property
    def num_dofs(self) -> int:
        return len(self.dof_names)

    @property
    @abstractmethod
    def bytes_per_env(self) -> int:
        """Approximate memory of each further environment, in bytes."""

    @abstractmethod
    def set_drive_mode(self, effort: Tensor) -> None:
        """Set the meaning of commands: efforts where ``effort`` ``(num_envs,)`` bool is True, else position targets."""

    @abstractmethod
    def step(self, command: Tensor) -> None:
        """Advance by ``dt`` with ``command`` ``(num_envs, num_dofs)`` held: efforts (N m, N) or targets (rad, m).

        Columns of passive joints are ignored. Effort limits of the model hold in both modes.
        """

    @abstractmethod
    def write(
        self,
        mask: Tensor,
        root_states: Tensor | None = None,
        dof_pos: Tensor | None = None,
        dof_vel: Tensor | None = None,
        object_states: Tensor | None = None,
    ) -> None:
        """Overwrite the state of environments where ``mask`` ``(num_envs,)`` is True; the others do not change.

        Arguments have the shapes of the attributes; a state that is None keeps its value. The solver's warm start of
        the written environments is reset; their contact, actuator and sensor forces are zero until the next ``step``.
        Sites, Jacobian and mass matrix are updated at once.

        An environment that is given NaN or a number beyond the simulator's limits is set to the model's default state
        instead, and is ``unstable`` until the end of the next ``step``.
        """

    @abstractmethod
    def get_state(self) -> dict[str, Tensor]:
        """Return the state from which ``set_state`` continues bitwise, as CPU tensors in memory of their own."""

    @abstractmethod
    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restore what ``get_state`` returned and refresh the state tensors."""
