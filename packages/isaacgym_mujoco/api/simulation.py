"""A simulation: recorded environments and actors, then a compiled layout, an engine and tensors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isaacgym_mujoco.api.actor_properties import check_limits, matrix, sizes
from mujoco_batches.assets.collisions import ROLL, SPIN
from mujoco_batches.assets.terrain import Terrain
from mujoco_batches.engine.base import Engine
from mujoco_batches.engine.layout import Actor, Layout, build_layout
from mujoco_batches.engine.numerics import principal_axes
from mujoco_batches.scene.params import AttractorProperties, ForceSensorPlace, PlaneParams, SimParams
from mujoco_batches.scene.properties import RigidBodyProperties
from mujoco_batches.scene.transforms import Transform, Vec3, pose_array, pose_object

ENGINE_VARIABLE = "ISAACGYM_MUJOCO_ENGINE"  # "warp" runs MuJoCo Warp on the CPU, for tests


@dataclass(eq=False)  # hashable, as Isaac Gym's
class Env:
    """A recorded environment, which is also its handle.

    The methods ``apply_*`` set what was recorded, at any time after the scene is compiled.
    """

    sim: Simulation
    index: int
    origin: Vec3
    actors: list[Actor] = field(default_factory=list)
    attractors: list[AttractorProperties] = field(default_factory=list)
    force_sensors: list[ForceSensorPlace] = field(default_factory=list)  # besides the assets' sensors

    def first(self, parts: str, actor: int) -> int:
        """Return the index in the environment of an actor's first body or DOF, by ``body_names`` or ``dof_names``."""
        return sum(len(getattr(a.asset, parts)) for a in self.actors[:actor])

    def body(self, handle: int) -> tuple[int, int]:
        """Return the actor of a body of the environment, and the body's index in it."""
        index = handle
        for k, actor in enumerate(self.actors):
            if 0 <= index < len(actor.asset.body_names):
                return k, index
            index -= len(actor.asset.body_names)
        raise IndexError(f"environment {self.index} has no body {handle}")

    def apply_bodies(self, number: int, before: list[RigidBodyProperties] | None = None) -> None:
        """Set an actor's masses, centres of mass and inertias that differ from ``before``, or all of them."""
        actor = self.actors[number]
        bodies = actor.asset.body_properties() if actor.bodies is None else actor.bodies
        changed = [k for k, body in enumerate(bodies) if before is None or body != before[k]]
        if changed:
            ids = self.sim.layout.bodies[np.add(changed, self.first("body_names", number))]
            moments, axes = zip(*(principal_axes(matrix(bodies[k].inertia)) for k in changed))
            masses, centres = [bodies[k].mass for k in changed], [list(bodies[k].com) for k in changed]
            fields = {"body_mass": masses, "body_ipos": centres, "body_inertia": moments, "body_iquat": axes}
            self._set({name: (ids, np.array(values)) for name, values in fields.items()})

    def apply_shapes(self, number: int) -> None:
        """Set the friction of an actor's shapes."""
        layout = self.sim.layout
        friction = np.array([shape.friction for shape in self.actors[number].shapes])
        rows = np.stack([friction, *(np.full(len(friction), v) for v in (SPIN, ROLL))], axis=1)
        self._set({"geom_friction": (layout.geoms(number), rows)})  # contacts between shapes of the actor
        ids = layout.pairs.of_actor(number, len(friction))
        everyone = [shape.friction for actor in self.actors for shape in actor.shapes]
        self._set({"pair_friction": (layout.pairs.ids[ids], layout.pairs.friction(ids, everyone))})

    def apply_tendons(self, number: int) -> None:
        """Set the damping and stiffness of an actor's tendons."""
        actor, model = self.actors[number], self.sim.layout.model
        ids = np.array([model.tendon(f"{number}/{name}").id for name in actor.asset.tendon_names], dtype=np.int64)
        self._set(
            {
                "tendon_damping": (ids, np.array([t.damping for t in actor.tendons])),
                "tendon_stiffness": (ids, np.array([t.stiffness for t in actor.tendons])),
            }
        )

    def apply_sizes(self, number: int) -> None:
        """Set sizes and positions of an actor's shapes, bodies and joints at its scale; masses are not included."""
        actor = self.actors[number]
        self._set(sizes(self.sim.layout, number, actor.asset.model, actor.scale))

    def apply_attractors(self) -> None:
        """Set the targets of the environment's attractors."""
        rows = np.array(self.sim.layout.model.eq_data)
        for row, attractor in zip(rows, self.attractors):
            row[3:6] = list(attractor.target.p)
        self._set({"eq_data": (np.arange(len(rows)), rows)})

    def _set(self, fields: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Set rows of fields of MuJoCo's model, if there are any."""
        if any(len(ids) for ids, _ in fields.values()):
            self.sim.engine.set_model_fields(self.index, fields)


class Simulation:
    """A simulation, as returned by ``create_sim``.

    Environments are recorded until ``prepare_sim`` is called or the first tensor is acquired. Then they are compiled to
    one layout, and an engine is created. Tensors are allocated once, and filled by the ``refresh_*`` methods.
    """

    def __init__(self, params: SimParams, device: str = "cpu") -> None:
        self.params, self.device = params, device
        self.planes: list[PlaneParams] = []
        self.terrains: list[Terrain] = []
        self.envs: list[Env] = []
        self.frame, self.created = 0, time.monotonic()
        self._layout: Layout | None = None
        self._engine: Engine | None = None
        self._tensors: dict[tuple, Tensor] = {}
        self._changes: list[Callable[[], None]] = []

    @property
    def compiled(self) -> bool:
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """The engine; the first access compiles the scene."""
        if self._engine is None:
            self._compile()
        assert self._engine is not None
        return self._engine

    @property
    def layout(self) -> Layout:
        """The compiled environment."""
        assert self.engine is not None and self._layout is not None
        return self._layout

    def record(self, what: str) -> None:
        """Raise RuntimeError if the scene is compiled."""
        if self.compiled:
            raise RuntimeError(f"{what} after prepare_sim, or after a tensor was acquired: the scene is compiled")

    def _compile(self) -> None:
        if not self.envs or not self.envs[0].actors:
            raise RuntimeError("the simulation has no actor: call create_env and create_actor before prepare_sim")
        # build one model for all environments
        first = self.envs[0]
        for env in self.envs[1:]:
            self._check_alike(first, env)
        self._layout = build_layout(
            first.actors, first.attractors, self.params, self.planes, self.terrains, first.force_sensors
        )
        # properties of joints may differ from the beginning
        rows = np.stack([np.concatenate([actor.dof_properties for actor in env.actors]) for env in self.envs])
        dofs = slice(0, rows.shape[1])
        check_limits(self._layout, dofs, rows)
        poses = np.array([[pose_array(actor.pose) for actor in env.actors] for env in self.envs])
        self._engine = engine = self._make_engine(self._layout, poses)
        if engine.num_dofs:
            engine.set_dof_properties(None, dofs, rows)
        # other properties become rows of their own only in environments where they differ
        for env in self.envs:
            if [a.target.p for a in env.attractors] != [a.target.p for a in first.attractors]:
                env.apply_attractors()
            for k, (actor, model) in enumerate(zip(env.actors, first.actors)):
                if actor.scale != 1.0 or actor.asset is not model.asset:
                    env.apply_sizes(k)
                if actor.asset is not model.asset:
                    env.apply_bodies(k)
                elif actor.bodies is not None:
                    env.apply_bodies(k, actor.asset.body_properties())
                if [s.friction for s in actor.shapes] != [s.friction for s in model.shapes]:
                    env.apply_shapes(k)
                if actor.tendons != model.tendons or any(t.stiffness for t in actor.tendons):
                    env.apply_tendons(k)
        # states and commands that were set while the scene was recorded
        self.write_dof_states(
            [(env, k) for env in self.envs for k, a in enumerate(env.actors) if a.dof_states is not None]
        )
        for change in self._changes:
            change()

    def when_compiled(self, change: Callable[[], None]) -> None:
        """Call a function that changes the engine: now, or after the scene is compiled."""
        if self.compiled:
            change()
        else:
            self._changes.append(change)

    def write_dof_states(self, actors: list[tuple[Env, int]]) -> None:
        """Set the DOFs of actors, by environment and number, to their ``dof_states``."""
        if not actors:
            return
        engine = self.engine
        new = engine.tensor("dofs").cpu()
        for env, number in actors:
            first = env.index * engine.num_dofs + env.first("dof_names", number)
            states = env.actors[number].dof_states
            assert states is not None
            new[first : first + len(states)] = torch.tensor(states.view(np.float32).reshape(-1, 2))
        rows = torch.tensor([env.index * engine.num_actors + number for env, number in actors], dtype=torch.int32)
        engine.write_dofs(engine.actor_mask(rows.to(engine.device)), new.to(engine.device))

    def _make_engine(self, layout: Layout, poses: np.ndarray) -> Engine:
        """Return MuJoCo Warp's engine for a CUDA device or if ``ENGINE_VARIABLE`` asks for it, else the CPU engine."""
        if self.device == "cpu" and os.environ.get(ENGINE_VARIABLE, "") != "warp":
            from mujoco_batches.engine.cpu import CpuEngine

            return CpuEngine(layout, poses)
        from mujoco_batches.engine.cuda import WarpEngine

        return WarpEngine(layout, poses, self.device)

    @staticmethod
    def _check_alike(first: Env, env: Env) -> None:
        if len(first.actors) != len(env.actors):
            raise NotImplementedError(
                f"environment {env.index} has {len(env.actors)} actors, the first {len(first.actors)}; all "
                "environments need the same list of assets"
            )
        # environments may not differ in sensors and attractors
        sensors = [[sensor.numbers() for sensor in e.force_sensors] for e in (first, env)]
        if sensors[0] != sensors[1]:
            raise NotImplementedError(f"environment {env.index} has other force sensors than the first environment")
        attractors = [[(a.rigid_handle, *a.offset.p) for a in e.attractors] for e in (first, env)]
        if attractors[0] != attractors[1]:
            raise NotImplementedError(f"environment {env.index} has other attractors than the first environment")
        relations = [[[a.group == b.group for b in e.actors] for a in e.actors] for e in (first, env)]
        # assets may differ in sizes and masses
        for k, (a, b) in enumerate(zip(first.actors, env.actors)):
            if a.asset is not b.asset and a.asset.structure() != b.asset.structure():
                raise NotImplementedError(
                    f"actor {b.name!r} of environment {env.index} has the asset {b.asset.name}, in the first "
                    f"environment {a.asset.name}; all environments need the same list of assets, or assets that differ "
                    "in sizes and masses alone"
                )
            filters = [(actor.filter < 0, actor.filters()) for actor in (a, b)]
            if filters[0] != filters[1] or relations[0][k] != relations[1][k]:
                raise NotImplementedError(
                    f"actor {b.name!r} of environment {env.index} has another collision filter or group than in the "
                    "first environment"
                )

    def tensor(self, *key: Any) -> Tensor:
        """Return the tensor of a quantity of ``Engine.tensor``, which the first call allocates and fills."""
        if key not in self._tensors:
            self._tensors[key] = self.engine.tensor(*key)
        return self._tensors[key]

    def acquired(self, *kind: object) -> list[tuple[tuple, Tensor]]:
        """Return the tensors whose keys begin with ``kind``."""
        return [(key, tensor) for key, tensor in self._tensors.items() if key[: len(kind)] == kind]

    def body_pose(self, env: Env, handle: int) -> Transform:
        """Return the pose of a body of an environment: of the last step, or as recorded if not compiled."""
        if self.compiled:
            bodies = self.engine.tensor("bodies")
            x, y, z, qx, qy, qz, qw = bodies[env.index * self.engine.num_bodies + handle, :7].tolist()
            return pose_object(np.array([x, y, z, qw, qx, qy, qz]))
        actor, body = env.body(handle)
        return env.actors[actor].pose * env.actors[actor].asset.rest_poses()[body]


def copied(values: list[Any]) -> list[Any]:
    """Copy a list of ``properties.Scalars``, which a task may edit later."""
    return [value.__deepcopy__({}) for value in values]
