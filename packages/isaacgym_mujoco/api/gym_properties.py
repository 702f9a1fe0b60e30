"""Methods of ``gym`` for properties of actors, in one environment and at any time."""

import numpy as np

from isaacgym_mujoco.api import actor_properties
from isaacgym_mujoco.api.gym_assets import add_getters, tell_unused_shape_properties, tell_unused_tendon_properties
from isaacgym_mujoco.api.simulation import Env, copied
from mujoco_batches.scene.params import tell_ignored
from mujoco_batches.scene.properties import (
    DOF_PROPERTIES,
    RigidBodyProperties,
    RigidShapeProperties,
    TendonProperties,
)


class PropertyMethods:
    """Drives, masses, friction, tendons and scale of actors."""

    def get_actor_dof_properties(self, env: Env, actor: int) -> np.ndarray:
        return env.actors[actor].dof_properties.copy()

    def set_actor_dof_properties(self, env: Env, actor: int, properties: np.ndarray) -> bool:
        """Set drives, limits and armature of an actor's DOFs, at any time; friction has no effect."""
        rows = np.array(properties, dtype=DOF_PROPERTIES)
        if rows.shape != env.actors[actor].dof_properties.shape:
            expected = env.actors[actor].dof_properties.shape[0]
            raise ValueError(f"set_actor_dof_properties: {rows.shape[0]} rows for {expected} DOFs")
        tell_ignored("set_actor_dof_properties", ["friction"] if rows["friction"].any() else [])
        if env.sim.compiled:
            first = env.first("dof_names", actor)
            dofs = slice(first, first + len(rows))
            actor_properties.check_limits(env.sim.layout, dofs, rows)
            env.sim.engine.set_dof_properties(env.index, dofs, rows)
        env.actors[actor].dof_properties = rows
        return True

    def get_actor_rigid_body_properties(self, env: Env, actor: int) -> list[RigidBodyProperties]:
        record = env.actors[actor]
        return record.asset.body_properties() if record.bodies is None else copied(record.bodies)

    def set_actor_rigid_body_properties(
        self, env: Env, actorHandle: int, props: list[RigidBodyProperties], recomputeInertia: bool = False
    ) -> bool:
        """Set masses, centres and inertias, at any time. If it is recomputed, an inertia follows a new mass."""
        before = self.get_actor_rigid_body_properties(env, actorHandle)
        bodies = actor_properties.with_inertias(props, before) if recomputeInertia else copied(props)
        env.actors[actorHandle].bodies = bodies
        if env.sim.compiled:
            env.apply_bodies(actorHandle, before)
        return True

    def get_actor_rigid_shape_properties(self, env: Env, actor: int) -> list[RigidShapeProperties]:
        shapes = copied(env.actors[actor].shapes)
        for shape, number in zip(shapes, env.actors[actor].filters()):
            shape.filter = number
        return shapes

    def set_actor_rigid_shape_properties(self, env: Env, actor: int, properties: list[RigidShapeProperties]) -> bool:
        """Set friction, at any time, and filters, before the scene is compiled; the rest has no effect.

        Properties beyond the actor's shapes are left out; shapes beyond the properties keep theirs.
        """
        count = len(env.actors[actor].shapes)
        if len(properties) != count:
            properties = [*properties[:count], *self.get_actor_rigid_shape_properties(env, actor)[len(properties) :]]
        if env.sim.compiled and [p.filter for p in properties] != env.actors[actor].filters():
            raise NotImplementedError("set_actor_rigid_shape_properties: filters cannot change after prepare_sim")
        tell_unused_shape_properties(properties)
        env.actors[actor].shapes, env.actors[actor].own_shapes = copied(properties), True
        if env.sim.compiled:
            env.apply_shapes(actor)
        return True

    def set_actor_tendon_properties(self, env: Env, actor: int, properties: list[TendonProperties]) -> bool:
        """Set the tendons' damping and stiffness, at any time; the stiffness of their limits stays MuJoCo's."""
        tell_unused_tendon_properties(properties, env.actors[actor].tendons)
        env.actors[actor].tendons = copied(properties)
        if env.sim.compiled:
            env.apply_tendons(actor)
        return True

    def get_actor_scale(self, env: Env, actor: int) -> float:
        return env.actors[actor].scale

    def set_actor_scale(self, env: Env, actor: int, scale: float) -> bool:
        """Set an actor's size relative to its asset, at any time.

        Shapes, joints' places, limits of prismatic joints, masses and inertias follow. An actor with collision meshes
        keeps its scale of 1: others raise ``NotImplementedError``.
        """
        record, scale = env.actors[actor], float(np.ravel(scale)[0])
        actor_properties.check_scale(record, scale)
        factor = scale / record.scale
        if factor == 1.0:
            return True
        record.bodies = actor_properties.scaled(self.get_actor_rigid_body_properties(env, actor), factor)
        record.scale = scale
        if env.sim.compiled:
            env.apply_sizes(actor)
            env.apply_bodies(actor)
        rows = actor_properties.scaled_limits(record.dof_properties, record, factor)
        return self.set_actor_dof_properties(env, actor, rows)


def _parts_of_actor(attribute: str, env: Env, actor: int) -> list:
    record = env.actors[actor]
    return getattr(record if attribute in ("shapes", "tendons") else record.asset, attribute)


add_getters(PropertyMethods, "actor", _parts_of_actor)
