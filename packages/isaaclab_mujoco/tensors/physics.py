"""The simulation: one engine of ``mujoco_batches`` for all that was spawned, and the view that makes the others."""

import logging
import os
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isaaclab_mujoco.assets.robots import breadth_first
from isaaclab_mujoco.errors import NotSupported, UserError
from isaaclab_mujoco.stage.prims import FIRST, Stage, template
from isaaclab_mujoco.tensors.materials import Materials
from mujoco_batches.assets.terrain import Terrain, from_triangles
from mujoco_batches.engine.base import Engine
from mujoco_batches.engine.layout import Actor, ContactList, Layout, build_layout
from mujoco_batches.scene.params import DOF_MODE_POS, PlaneParams, SimParams, TriangleMeshParams
from mujoco_batches.scene.properties import MAX_FLOAT
from mujoco_batches.scene.transforms import Quat, Transform, Vec3

_log = logging.getLogger("isaaclab_mujoco")
_MOST_SLOTS, _SLOTS_OF_A_SHAPE = 32, 12  # contacts of a body that are reported, the strongest first
_SLOTS_OF_A_PAIR = 16
ENGINE_VARIABLE = "ISAACLAB_MUJOCO_ENGINE"  # "warp": MuJoCo Warp also on a CPU, which is slow, for tests
_CHECK_EVERY = 256  # steps on a device between looks at the count of unstable environments, which wait for it


class Physics:
    """One engine; environments are simulated separately, each at its place in the world.

    Attributes:
        engine, layout: of ``mujoco_batches``.
        device: of all tensors of states; properties are on the CPU, as PhysX's are.
        joint_forces: of the engine.
        robots: the actor of each path that was spawned.
        paths: of each body of an environment, its path in the first one.
        contacts: numbers of the engine's contact lists, by body and by the other body or ground, None for all.
        materials: friction of all shapes.
        stale: whether a state was written since the poses were computed.
        failed: ``(num_envs,)`` bool, whether the physics failed in a step since its reader has cleared this.
        fields: fields of MuJoCo's model that differ between environments, ``(num_envs, ...)``.
    """

    def __init__(self, stage: Stage, cfg: Any) -> None:
        self.cfg, self.steps, self.stale, self._unstable = cfg, 0, False, 0
        self.fields: dict[str, np.ndarray] = {}
        self.num_envs, self.spawned = stage.num_envs, list(stage.spawned)
        spawned = self.spawned
        if not spawned:
            raise UserError("the scene has no robot and no object: nothing was spawned")
        _check_paths(stage)
        actors = [_actor(held) for held in spawned]
        self.robots = {held.path: k for k, held in enumerate(spawned)}
        self.paths = [path for held in spawned for path in body_paths(held)]
        planes, terrains = _grounds(stage)
        self.grounds = [g for g in stage.grounds if g.mesh is None] + [g for g in stage.grounds if g.mesh is not None]
        lists = self._contact_lists(stage, actors)
        self.contacts = {(c.body, c.other): number for number, c in enumerate(lists)}
        self.actors, self.layout = (
            actors,
            build_layout(actors, [], _params(cfg, spawned), planes, terrains, (), lists, True),
        )
        n = self.num_envs
        poses = np.zeros((n, len(actors), 7))
        poses[..., :3] = stage.origins[:, None] + [held.position for held in spawned]
        poses[..., 3:] = [held.orientation for held in spawned]
        self.engine = make_engine(self.layout, poses, torch.device(str(cfg.device)))
        self.device = self.engine.device
        self.failed = torch.zeros_like(self.engine.blown)
        self.joint_forces = self.engine.joint_forces = torch.zeros(n, self.engine.num_dofs, device=self.device)
        self.properties = [np.repeat(actor.dof_properties[None], n, axis=0) for actor in actors]
        self.changed = set(range(len(actors)))
        self.materials = Materials(self, cfg.physics_material, [ground.material for ground in self.grounds])
        self.view = SimulationView(self)
        self.accelerations: Tensor | None = None
        # roots whose velocity was written since the last step, and each actor's bodies
        self._resting = torch.zeros(n * len(actors), dtype=torch.bool, device=self.device)
        self._num_bodies = torch.tensor([len(actor.asset.body_names) for actor in actors], device=self.device)

    def step(self) -> None:
        """Advance by one physics step."""
        for k in sorted(self.changed):
            self.engine.set_dof_properties(None, self.layout.places[k].dofs, self.properties[k])
        self.changed.clear()
        self.materials.apply()
        before = None if self.accelerations is None else self.bodies()[..., 7:].clone()
        self.engine.step()
        self._resting.zero_()
        self.failed |= self.engine.blown
        self.steps += 1
        self.stale = False
        if before is not None and self.accelerations is not None:
            self.accelerations.copy_((self.bodies()[..., 7:] - before) / self.cfg.dt)
        looks = self.device.type == "cpu" or self.steps % _CHECK_EVERY == 0
        if looks and self.engine.blow_ups > self._unstable:
            if not self._unstable:
                _log.warning(
                    "isaaclab_mujoco: the physics of an environment became unstable; it went back to its start"
                )
            self._unstable = self.engine.blow_ups

    def set_fields(self, env: int, fields: dict[str, tuple[Any, Any]]) -> None:
        """Set rows of fields of MuJoCo's model in one environment, as ``Engine.set_model_fields``."""
        for name, (ids, values) in fields.items():
            if name not in self.fields:
                self.fields[name] = np.repeat(getattr(self.layout.model, name)[None], self.num_envs, axis=0)
            rows = self.fields[name]
            rows[env, ids] = np.reshape(values, rows[env, ids].shape)
        self.engine.set_model_fields(env, fields)

    def get_state(self) -> dict[str, Tensor]:
        """Return the state of the simulation, and the properties of its environments."""
        state = {f"engine/{name}": x for name, x in self.engine.get_state().items()}
        state.update({f"field/{name}": torch.tensor(x) for name, x in self.fields.items()})
        for k, table in enumerate(self.properties):
            state.update({f"joints/{k}/{name}": torch.tensor(table[name]) for name in table.dtype.names or ()})
        state["materials"], state["steps"] = torch.tensor(self.materials.values), torch.tensor(self.steps)
        state["joint_forces"], state["resting"] = self.joint_forces.clone(), self._resting.clone()
        return state if self.accelerations is None else {**state, "accelerations": self.accelerations.clone()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restore what ``get_state`` returned."""
        for name, present in self.fields.items():
            model = np.broadcast_to(getattr(self.layout.model, name), present.shape)
            values = state[f"field/{name}"].numpy() if f"field/{name}" in state else model
            everything = np.arange(present.shape[1])
            for env in np.flatnonzero((present != values).reshape(self.num_envs, -1).any(axis=1)).tolist():
                self.set_fields(env, {name: (everything, values[env])})
        for k, table in enumerate(self.properties):
            for name in table.dtype.names or ():
                table[name] = state[f"joints/{k}/{name}"].numpy()
            self.engine.set_dof_properties(None, self.layout.places[k].dofs, table)
        self.materials.values[...] = state["materials"].numpy()
        self.materials.changed[:] = True
        self.materials.apply()
        prefix = "engine/"
        self.engine.set_state({key[len(prefix) :]: x for key, x in state.items() if key.startswith(prefix)})
        self.joint_forces.copy_(state["joint_forces"])
        self._resting.copy_(state["resting"])
        self.failed.zero_()
        held = state.get("accelerations")
        self.accelerations = None if held is None else held.to(self.device, copy=True)
        self.steps, self.stale = int(state["steps"]), False

    def forward(self) -> None:
        """Compute the poses of bodies from the states that were written."""
        if self.stale:
            self.engine.refresh()
            self.stale = False

    def bodies(self) -> Tensor:
        """Return the states of the bodies, ``(num_envs, num_bodies, 13)``, velocities at the centre of mass."""
        self.forward()
        return self.engine.tensor("bodies").view(self.num_envs, -1, 13)

    def read_accelerations(self) -> Tensor:
        """Return the accelerations of the bodies in the last step, ``(num_envs, num_bodies, 6)``.

        They are 0 where a velocity was written since. MuJoCo Warp's engine computes them from the first call on, in
        each step, and until then they are 0.
        """
        if self.engine.keeps_velocities:
            resting = self._resting.view(self.num_envs, -1).repeat_interleave(self._num_bodies, dim=1)
            return self.engine.accelerations().masked_fill_(resting[..., None], 0.0)
        if self.accelerations is None:
            self.accelerations = torch.zeros(self.num_envs, self.engine.num_bodies, 6, device=self.device)
        return self.accelerations

    def write_roots(self, actor: int, part: slice, values: Tensor, envs: Tensor) -> None:
        roots = self.engine.tensor("roots").view(self.num_envs, -1, 13)
        roots[envs, actor, part] = values
        mask = self._mask(actor, envs)
        self.engine.write_roots(mask, roots.view(-1, 13))
        if self.engine.keeps_velocities and part.stop == 13:
            self._resting |= mask
        self.stale = True

    def write_dofs(self, actor: int, columns: Tensor, part: int, values: Tensor, envs: Tensor) -> None:
        dofs = self.engine.tensor("dofs").view(self.num_envs, -1, 2)
        dofs[envs[:, None], columns, part] = values
        self.engine.write_dofs(self._mask(actor, envs), dofs.view(-1, 2))
        self.stale = True

    def _mask(self, actor: int, envs: Tensor) -> Tensor:
        mask = torch.zeros(self.num_envs, self.engine.num_actors, dtype=torch.bool, device=self.device)
        if (meant := getattr(envs, "mask", None)) is not None:  # all environments, of which some are meant
            mask[:, actor].copy_(meant)
        else:
            mask[:, actor].index_fill_(0, envs, True)
        return mask.view(-1)

    def rows(self, pattern: str) -> list[int]:
        """Return the bodies of an environment whose paths match a pattern of Isaac Lab or PhysX."""
        expression = re.compile("/".join(_token(token) for token in template(pattern).split("/")))
        return [row for row in self.order if expression.fullmatch(self.paths[row])]

    @property
    def order(self) -> list[int]:
        """The bodies of an environment, each actor's breadth first."""
        rows, first = [], 0
        for actor in self.actors:
            rows += [first + body for body in breadth_first(actor.asset)[0]]
            first += len(actor.asset.body_names)
        return rows

    def others(self, pattern: str) -> list[int]:
        """Return the bodies that match a filter's pattern, or the grounds below it as negative numbers."""
        path = template(pattern).replace(".*", "").rstrip("/*")
        grounds = [-1 - i for i, ground in enumerate(self.grounds) if (ground.path + "/").startswith(path + "/")]
        return self.rows(pattern) or grounds

    def _contact_lists(self, stage: Stage, actors: list[Actor]) -> list[ContactList]:
        """Return what the contact sensors ask for."""
        self.actors, lists = actors, {}
        slots = [min(_MOST_SLOTS, max(1, _SLOTS_OF_A_SHAPE * r.count)) for a in actors for r in a.asset.shape_ranges]
        for cfg in stage.sensors:
            for row in self.rows(cfg.prim_path):
                lists[row, None] = ContactList(row, slots[row])
                for pattern in cfg.filter_prim_paths_expr:
                    for other in self.others(pattern):
                        lists[row, other] = ContactList(row, _SLOTS_OF_A_PAIR, other, points=True)
        return list(lists.values())


def make_engine(layout: Layout, poses: np.ndarray, device: torch.device) -> Engine:
    """Return MuJoCo Warp's engine for a CUDA device or if ``ENGINE_VARIABLE`` asks for it, else MuJoCo's."""
    if device.type == "cpu" and os.environ.get(ENGINE_VARIABLE, "") != "warp":
        from mujoco_batches.engine.cpu import CpuEngine

        return CpuEngine(layout, poses)
    from mujoco_batches.engine.cuda import WarpEngine

    return WarpEngine(layout, poses, str(device))


class SimulationView:
    """``omni.physics.tensors.SimulationView``."""

    is_valid = True

    def __init__(self, physics: Physics) -> None:
        self._physics = physics

    def create_articulation_view(self, pattern: str) -> Any:
        from isaaclab_mujoco.tensors.articulations import ArticulationView

        path = template(pattern)
        actor = self._physics.robots.get(path)
        if actor is None:  # the articulation's root may be named
            actor = next((k for held, k in self._physics.robots.items() if path.startswith(held + "/")), None)
        if actor is None:
            raise NotSupported(f"{pattern}: there is no articulation; there are {', '.join(self._physics.robots)}")
        return ArticulationView(self._physics, actor)

    def create_rigid_body_view(self, pattern: str | list[str]) -> Any:
        from isaaclab_mujoco.tensors.bodies import RigidBodyView

        return RigidBodyView(self._physics, pattern)

    def create_rigid_contact_view(
        self, pattern: str, filter_patterns: Any = (), max_contact_data_count: int = 0
    ) -> Any:
        from isaaclab_mujoco.tensors.contacts import RigidContactView

        return RigidContactView(self._physics, pattern, list(filter_patterns))

    def update_articulations_kinematic(self) -> None:
        self._physics.forward()

    def set_subspace_roots(self, pattern: str) -> None:
        pass

    def get_gravity(self) -> tuple[float, ...]:
        return tuple(self._physics.cfg.gravity)

    def set_gravity(self, gravity: Any) -> None:
        self._physics.cfg.gravity = tuple(float(x) for x in gravity)
        self._physics.engine.set_gravity(np.array(self._physics.cfg.gravity))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise NotSupported(f"SimulationView.{name}: isaaclab_mujoco does not have this")


def body_paths(held: Any) -> list[str]:
    """Return the paths of the bodies of what was spawned, in the asset's order."""
    names = held.asset.body_names
    lone = len(names) == 1 and not held.asset.dof_names and getattr(held.cfg, "articulation_props", None) is None
    return [held.path] if lone else [f"{held.path}/{name}" for name in names]


def _token(token: str) -> str:
    """Return a token of a path as a regular expression: ``*`` without a dot before it is PhysX's wildcard."""
    return re.sub(r"(?<![.\])])\*", "[^/]*", token)


def _check_paths(stage: Stage) -> None:
    outside = [held.path for held in stage.spawned if not held.path.startswith(FIRST + "/")]
    if outside and stage.num_envs > 1:
        raise NotSupported(
            f"{outside[0]}: what moves must be below /World/envs/env_.*, where each environment has its own"
        )


def _actor(held: Any) -> Actor:
    asset, cfg = held.asset, held.cfg
    properties = asset.dof_properties.copy()
    properties["driveMode"] = DOF_MODE_POS
    # all joints have limits, because a task may set them later; those without one are far away
    free = ~properties["hasLimits"]
    properties["lower"][free], properties["upper"][free], properties["hasLimits"] = -MAX_FLOAT, MAX_FLOAT, True
    apart = getattr(getattr(cfg, "articulation_props", None), "enabled_self_collisions", None) is False
    w, x, y, z = held.orientation
    pose = Transform(Vec3(*held.position), Quat(x, y, z, w))
    return Actor(asset, held.path, pose, 0, int(apart), properties, asset.shapes, asset.tendons)


def _params(cfg: Any, spawned: list[Any]) -> SimParams:
    params = SimParams()
    params.dt, params.substeps, params.gravity = cfg.dt, 1, Vec3(*cfg.gravity)
    rigid = [getattr(held.cfg, "rigid_props", None) for held in spawned]
    speeds = [speed for r in rigid if (speed := getattr(r, "max_depenetration_velocity", None))]
    if speeds:
        params.physx.max_depenetration_velocity = float(min(speeds))
    return params


def _grounds(stage: Stage) -> tuple[list[PlaneParams], list[Terrain]]:
    planes, terrains = [], []
    for ground in stage.grounds:
        if ground.mesh is None:
            plane = PlaneParams()
            plane.normal, plane.distance = Vec3(0, 0, 1), -ground.height
            planes.append(plane)
        else:
            vertices, faces = np.asarray(ground.mesh.vertices, np.float32), np.asarray(ground.mesh.faces, np.uint32)
            params = TriangleMeshParams()
            params.nb_vertices, params.nb_triangles = len(vertices), len(faces)
            terrains.append(from_triangles(vertices, faces, params))
    return planes, terrains
