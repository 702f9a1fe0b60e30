"""Methods of ``gym`` for simulations, environments and actors."""

import copy
import time

import numpy as np
import torch

from isaacgym_mujoco.api.gym_assets import find
from isaacgym_mujoco.api.simulation import Env, Simulation
from isaacgym_mujoco.on_cpu import VARIABLE, NoCudaDevice, on_cpu
from mujoco_batches.assets import terrain
from mujoco_batches.assets.asset import Asset
from mujoco_batches.engine.layout import Actor
from mujoco_batches.scene.params import (
    AXIS_ALL,
    AXIS_TRANSLATION,
    DOMAIN_ACTOR,
    DOMAIN_ENV,
    INVALID_HANDLE,
    SIM_FLEX,
    SIM_PHYSX,
    AttractorProperties,
    ForceSensorPlace,
    ForceSensorProperties,
    HeightFieldParams,
    PlaneParams,
    SimParams,
    TriangleMeshParams,
    tell_ignored,
)
from mujoco_batches.scene.transforms import Quat, Transform, Vec3


class SceneMethods:
    """Methods that record a scene, before it is compiled unless stated otherwise, or return its parts."""

    def create_sim(
        self,
        compute_device: int = 0,
        graphics_device: int = 0,
        type: int = SIM_FLEX,
        params: SimParams | None = None,
    ) -> Simulation:
        """Return an empty simulation; with the GPU pipeline it is on the CUDA device ``compute_device``."""
        params = SimParams() if params is None else params
        if type != SIM_PHYSX:
            raise NotImplementedError("create_sim: SIM_FLEX is not supported; use SIM_PHYSX")
        tell_ignored("SimParams", params.ignored())
        if not params.use_gpu_pipeline or on_cpu():
            return Simulation(params)
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not 0 <= compute_device < count:
            raise NoCudaDevice(
                f"create_sim: the GPU pipeline was asked for on CUDA device {compute_device}, but torch "
                f"{torch.__version__} sees {count}; use the CPU pipeline (sim_device=cpu pipeline=cpu), or set "
                f"{VARIABLE}=cpu (--device cpu before a script's name) if the code has no such flags"
            )
        return Simulation(params, f"cuda:{compute_device}")

    def destroy_sim(self, sim: Simulation) -> None:
        sim.envs.clear()

    def get_sim_params(self, sim: Simulation) -> SimParams:
        return copy.deepcopy(sim.params)

    def set_sim_params(self, sim: Simulation, params: SimParams) -> None:
        """Replace the parameters. Once compiled, the gravity may change; dt and substeps must stay."""
        fixed = [(p.dt, p.substeps) for p in (sim.params, params)]
        if sim.compiled and fixed[0] != fixed[1]:
            raise NotImplementedError("set_sim_params: dt and substeps cannot change after prepare_sim")
        before, sim.params = sim.params, copy.deepcopy(params)
        if sim.compiled and tuple(params.gravity) != tuple(before.gravity):
            sim.engine.set_gravity(np.array(list(params.gravity)))

    def add_ground(self, sim: Simulation, params: PlaneParams) -> None:
        """Add a plane."""
        sim.record("add_ground")
        tell_ignored("PlaneParams", params.ignored())
        sim.planes.append(copy.deepcopy(params))

    def add_heightfield(self, sim: Simulation, samples: np.ndarray, params: HeightFieldParams) -> None:
        """Add ground from samples in units of ``vertical_scale``; the first axis lies along x."""
        sim.record("add_heightfield")
        sim.terrains.append(terrain.from_heightfield(samples, copy.deepcopy(params)))

    def add_triangle_mesh(
        self, sim: Simulation, vertices: np.ndarray, triangles: np.ndarray, params: TriangleMeshParams
    ) -> None:
        """Add ground from the upper surface of a mesh."""
        sim.record("add_triangle_mesh")
        sim.terrains.append(terrain.from_triangles(vertices, triangles, copy.deepcopy(params)))

    def prepare_sim(self, sim: Simulation) -> bool:
        """Compile the scene."""
        return sim.engine is not None

    def get_frame_count(self, sim: Simulation) -> int:
        return sim.frame

    def get_sim_time(self, sim: Simulation) -> float:
        return sim.frame * sim.params.dt

    def get_elapsed_time(self, sim: Simulation) -> float:
        """Return the time since the simulation was created, s, by the clock on the wall."""
        return time.monotonic() - sim.created

    def get_sim_actor_count(self, sim: Simulation) -> int:
        return sum(len(env.actors) for env in sim.envs)

    def get_sim_dof_count(self, sim: Simulation) -> int:
        return sum(self.get_env_dof_count(env) for env in sim.envs)

    def get_sim_rigid_body_count(self, sim: Simulation) -> int:
        return sum(self.get_env_rigid_body_count(env) for env in sim.envs)

    def create_env(self, sim: Simulation, lower: Vec3, upper: Vec3, per_row: int) -> Env:
        """Record an environment; its origin on the grid has no effect on the physics."""
        sim.record("create_env")
        size, (row, column) = upper - lower, divmod(len(sim.envs), max(1, per_row))
        sim.envs.append(Env(sim, len(sim.envs), Vec3(column * size.x, row * size.y, 0.0)))
        return sim.envs[-1]

    def get_env_count(self, sim: Simulation) -> int:
        return len(sim.envs)

    def get_env(self, sim: Simulation, index: int) -> Env:
        return sim.envs[index]

    def get_env_origin(self, env: Env) -> Vec3:
        return env.origin

    def begin_aggregate(self, env: Env, max_bodies: int, max_shapes: int, self_collisions: bool) -> bool:
        """Do nothing: aggregates only speed up PhysX's broad phase."""
        return True

    def end_aggregate(self, env: Env) -> bool:
        """Do nothing, as ``begin_aggregate``."""
        return True

    def create_actor(
        self,
        env: Env,
        asset: Asset,
        pose: Transform,
        name: str = "",
        group: int = -1,
        filter: int = -1,
        segmentationId: int = 0,
    ) -> int:
        """Add an actor to an environment; return its index there."""
        env.sim.record("create_actor")
        properties = (asset.dof_properties.copy(), asset.shapes, asset.tendons)
        env.actors.append(Actor(asset, name, Transform(Vec3(*pose.p), Quat(*pose.r)), group, filter, *properties))
        return len(env.actors) - 1

    def create_rigid_body_attractor(self, env: Env, properties: AttractorProperties) -> int:
        """Pin a point of a body to a point of the environment, rigidly."""
        env.sim.record("create_rigid_body_attractor")
        if not properties.stiffness > 0:
            raise NotImplementedError("create_rigid_body_attractor: a stiffness of 0 is not supported")
        tell_ignored("create_rigid_body_attractor", ["stiffness", "damping"])
        if properties.axes & AXIS_ALL != AXIS_TRANSLATION:
            raise NotImplementedError("create_rigid_body_attractor: only axes=AXIS_TRANSLATION is supported")
        env.attractors.append(copy.deepcopy(properties))
        return len(env.attractors) - 1

    def create_force_sensor(
        self, env: Env, body: int, pose: Transform, properties: ForceSensorProperties | None = None
    ) -> int:
        """Add a sensor of the force and torque on a body of the environment, after those of the assets."""
        env.sim.record("create_force_sensor")
        env.body(body)  # raises IndexError if there is none
        env.force_sensors.append(ForceSensorPlace(*copy.deepcopy((body, pose, properties or ForceSensorProperties()))))
        return sum(len(actor.asset.sensors) for actor in env.actors) + len(env.force_sensors) - 1

    def get_actor_count(self, env: Env) -> int:
        return len(env.actors)

    def get_actor_handle(self, env: Env, index: int) -> int:
        return index if index < len(env.actors) else INVALID_HANDLE

    def find_actor_handle(self, env: Env, name: str) -> int:
        return find([actor.name for actor in env.actors], name)

    def get_actor_name(self, env: Env, actor: int) -> str:
        return env.actors[actor].name

    def get_actor_asset(self, env: Env, actor: int) -> Asset:
        return env.actors[actor].asset

    def get_actor_index(self, env: Env, actor: int, domain: int) -> int:
        if domain in (DOMAIN_ACTOR, DOMAIN_ENV):
            return actor
        return env.index * len(env.sim.envs[0].actors) + actor  # all environments have the same list

    def find_actor_index(self, env: Env, name: str, domain: int) -> int:
        actor = self.find_actor_handle(env, name)
        return actor if actor < 0 else self.get_actor_index(env, actor, domain)

    def get_env_dof_count(self, env: Env) -> int:
        return env.first("dof_names", len(env.actors))

    def get_env_rigid_body_count(self, env: Env) -> int:
        return env.first("body_names", len(env.actors))

    def get_actor_root_rigid_body_handle(self, env: Env, actor: int) -> int:
        return _index("body_names", env, actor, 0, DOMAIN_ENV)

    def get_rigid_transform(self, env: Env, body: int) -> Transform:
        """Return a body's pose: as placed, or after the last ``simulate``."""
        return env.sim.body_pose(env, body)

    def enable_actor_dof_force_sensors(self, env: Env, actor: int) -> bool:
        """Do nothing: all DOFs report their drives' forces."""
        return True


def _index(parts: str, env: Env, actor: int, index: int, domain: int) -> int:
    """Return the index of an actor's body, DOF or joint among those of ``domain``; -1 if it has not so many."""
    if not 0 <= index < len(getattr(env.actors[actor].asset, parts)):
        return INVALID_HANDLE
    if domain == DOMAIN_ACTOR:
        return index
    first = env.sim.envs[0]
    before = 0 if domain == DOMAIN_ENV else env.index * first.first(parts, len(first.actors))
    return before + env.first(parts, actor) + index


def _add_index_methods(part: str, parts: str) -> None:
    """Add the methods that return an index of a domain, or a handle, which is the index in the environment."""

    def get_index(self: SceneMethods, env: Env, actor: int, index: int, domain: int) -> int:
        return _index(parts, env, actor, index, domain)

    def get_handle(self: SceneMethods, env: Env, actor: int, index: int) -> int:
        return _index(parts, env, actor, index, DOMAIN_ENV)

    def find_index(self: SceneMethods, env: Env, actor: int, name: str, domain: int) -> int:
        return _index(parts, env, actor, find(getattr(env.actors[actor].asset, parts), name), domain)

    def find_handle(self: SceneMethods, env: Env, actor: int, name: str) -> int:
        return find_index(self, env, actor, name, DOMAIN_ENV)

    for method in (get_index, get_handle, find_index, find_handle):
        verb, kind = method.__name__.split("_")
        method.__name__ = f"{verb}_actor_{part}_{kind}"
        setattr(SceneMethods, method.__name__, method)


for _part, _parts in {"rigid_body": "body_names", "dof": "dof_names", "joint": "joint_names"}.items():
    _add_index_methods(_part, _parts)
