"""The layout of an environment: its recorded actors, the compiled model, and the addresses of each actor's parts."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass

import mujoco
import numpy as np

from isaacgym_mujoco.api.properties import RigidBodyProperties, RigidShapeProperties, TendonProperties
from isaacgym_mujoco.api.transforms import Transform
from isaacgym_mujoco.assets.asset import Asset
from isaacgym_mujoco.assets.collisions import Pairs


@dataclass
class Actor:
    """A recorded actor of one environment.

    ``bodies`` is None until a task sets properties of bodies. ``shapes`` and ``tendons`` are shared with the asset
    until a task sets others; ``own_shapes`` is whether it has set shapes.
    """

    asset: Asset
    name: str
    pose: Transform
    group: int
    filter: int
    dof_properties: np.ndarray
    shapes: list[RigidShapeProperties]
    tendons: list[TendonProperties]
    bodies: list[RigidBodyProperties] | None = None
    own_shapes: bool = False
    scale: float = 1.0

    def filters(self) -> list[int]:
        """Return the filter of each shape: the actor's, unless that is -1 or the task has set shapes."""
        by_shape = self.own_shapes or self.filter < 0
        return [int(shape.filter) if by_shape else self.filter for shape in self.shapes]


@dataclass
class ActorPlace:
    """An actor's rows of the environment's bodies and DOFs, and its root's addresses in MuJoCo's arrays."""

    fixed: bool
    bodies: slice
    dofs: slice
    root: int  # MuJoCo's body
    qpos: int = -1
    qvel: int = -1
    mocap: int = -1


@dataclass
class Layout:
    """A compiled environment.

    Attributes:
        model: the compiled model.
        substeps: physics steps per ``simulate``.
        places: one per actor.
        bodies: MuJoCo's ids of the environment's rigid bodies, in the order of the tensors.
        dof_qpos, dof_qvel, dof_joint: of each DOF, the addresses in qpos and qvel, and the joint.
        sensors: of each force sensor, the index in ``bodies`` and the pose in the body's frame.
        max_velocity: of each actor's root, the largest linear and angular speed, m/s and rad/s.
        root_damping: of each actor's root, linear and angular rates, 1/s; 0 unless it is free and the only body.
        link_damping: the same rates of the bodies of the other actors, ``(num_bodies, 2)``; 0 where they are weak.
        pairs: contacts between actors and with the ground.
    """

    model: mujoco.MjModel
    substeps: int
    places: list[ActorPlace]
    bodies: np.ndarray
    dof_qpos: np.ndarray
    dof_qvel: np.ndarray
    dof_joint: np.ndarray
    sensors: list[tuple[int, Transform]]
    max_velocity: list[tuple[float, float]]
    root_damping: list[tuple[float, float]]
    link_damping: np.ndarray
    pairs: Pairs

    @property
    def dof_actors(self) -> np.ndarray:
        """Actor of each DOF, ``(num_dofs,)``."""
        counts = [actor.dofs.stop - actor.dofs.start for actor in self.places]
        return np.repeat(np.arange(len(self.places)), counts)

    def geoms(self, actor: int) -> np.ndarray:
        """Return MuJoCo's ids of an actor's shapes."""
        return np.flatnonzero(np.isin(self.model.geom_bodyid, self.bodies[self.places[actor].bodies]))
