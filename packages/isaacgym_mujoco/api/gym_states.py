"""Methods of ``gym`` that read and set states and sensors of single actors, and of all bodies as NumPy arrays."""

from dataclasses import dataclass

import numpy as np
import torch

from isaacgym_mujoco.api.simulation import Env, Simulation
from mujoco_batches.scene.params import STATE_POS, STATE_VEL
from mujoco_batches.scene.transforms import Transform, Vec3

_VEC3 = np.dtype([(name, np.float32) for name in "xyz"])
_POSE = np.dtype([("p", _VEC3), ("r", np.dtype([(name, np.float32) for name in "xyzw"]))])
DOF_STATE = np.dtype([("pos", np.float32), ("vel", np.float32)])
BODY_STATE = np.dtype([("pose", _POSE), ("vel", np.dtype([("linear", _VEC3), ("angular", _VEC3)]))])


@dataclass
class DofFrame:
    """Origin and axis of a DOF, in the environment's frame."""

    origin: Vec3
    axis: Vec3


@dataclass
class Forces:
    """The force and torque at a force sensor."""

    force: Vec3
    torque: Vec3


@dataclass
class ForceSensor:
    """A force sensor of an actor."""

    sim: Simulation
    row: int

    def get_forces(self) -> Forces:
        """Return force and torque after the last ``simulate``, N and N m."""
        values = self.sim.engine.tensor("force_sensors")[self.row].tolist()
        return Forces(Vec3(*values[:3]), Vec3(*values[3:]))


class StateMethods:
    """States as structured arrays, which is slow: each call waits for the device."""

    def get_actor_dof_states(self, env: Env, actor: int, flags: int) -> np.ndarray:
        """Return ``DOF_STATE`` of an actor's DOFs."""
        record = env.actors[actor]
        if env.sim.compiled:
            states = env.sim.engine.tensor("dofs")[_dof_rows(env, actor)].cpu().numpy()
            return states.view(DOF_STATE).reshape(-1)
        if record.dof_states is not None:
            return record.dof_states.copy()
        rows, states = record.dof_properties, np.zeros(len(record.dof_properties), DOF_STATE)
        states["pos"] = np.where(rows["hasLimits"], np.clip(0.0, rows["lower"], rows["upper"]), 0.0)
        return states

    def set_actor_dof_states(self, env: Env, actor: int, states: np.ndarray, flags: int) -> bool:
        """Set positions or velocities of an actor's DOFs, or both, by ``STATE_POS``, ``STATE_VEL``, ``STATE_ALL``."""
        new = self.get_actor_dof_states(env, actor, flags).copy()
        for name, flag in (("pos", STATE_POS), ("vel", STATE_VEL)):
            if flags & flag:
                new[name] = states[name]
        env.actors[actor].dof_states = new
        if env.sim.compiled:
            env.sim.write_dof_states([(env, actor)])
        return True

    def get_actor_rigid_body_states(self, env: Env, actor: int, flags: int) -> np.ndarray:
        """Return ``BODY_STATE`` of an actor's bodies: of the last step, or as placed, with all joints at zero."""
        first = env.first("body_names", actor)
        return self.get_env_rigid_body_states(env, flags)[first:][: len(env.actors[actor].asset.body_names)]

    def get_env_rigid_body_states(self, env: Env, flags: int) -> np.ndarray:
        """Return ``BODY_STATE`` of an environment's bodies: of the last step, or as placed, with all joints at zero."""
        count = env.first("body_names", len(env.actors))
        if env.sim.compiled:
            return self.get_sim_rigid_body_states(env.sim, flags)[env.index * count :][:count]
        states = np.zeros(count, BODY_STATE)
        for row, (actor, rest) in zip(states, ((a, rest) for a in env.actors for rest in a.asset.rest_poses())):
            pose = actor.pose * rest
            row["pose"] = (tuple(pose.p), tuple(pose.r))
        return states

    def get_sim_rigid_body_states(self, sim: Simulation, flags: int) -> np.ndarray:
        """Return ``BODY_STATE`` of all bodies after the last ``simulate``."""
        return sim.engine.tensor("bodies").cpu().numpy().view(BODY_STATE).reshape(-1)

    def set_sim_rigid_body_states(self, sim: Simulation, states: np.ndarray, flags: int) -> bool:
        """Set poses or velocities of all bodies, or both; actors with DOFs are refused."""
        jointed = [actor.name for actor in sim.envs[0].actors if actor.asset.dof_names]
        if jointed:
            raise NotImplementedError(
                f"set_sim_rigid_body_states: {', '.join(jointed)} has DOFs; set its root and DOFs with"
                " set_actor_root_state_tensor and set_dof_state_tensor"
            )
        roots = [actor.bodies.start for actor in sim.layout.places]
        values = np.ascontiguousarray(states).view(np.float32).reshape(sim.engine.num_envs, -1, 13)[:, roots]
        new = sim.engine.tensor("roots")
        wanted = torch.tensor(values.reshape(-1, 13), device=new.device)
        for columns, flag in ((slice(0, 7), STATE_POS), (slice(7, 13), STATE_VEL)):
            if flags & flag:
                new[:, columns] = wanted[:, columns]
        sim.engine.write_roots(None, new)
        return True

    def get_dof_frame(self, env: Env, dof: int) -> DofFrame:
        """Return origin and axis of a DOF of the environment, after the last ``simulate``."""
        layout = env.sim.layout
        joint = layout.dof_joint[dof]
        body = int(np.flatnonzero(layout.bodies == layout.model.jnt_bodyid[joint])[0])
        pose: Transform = env.sim.body_pose(env, body)
        origin, axis = Vec3(*layout.model.jnt_pos[joint]), Vec3(*layout.model.jnt_axis[joint])
        return DofFrame(pose.transform_point(origin), pose.transform_vector(axis))

    def get_actor_force_sensor_count(self, env: Env, actor: int) -> int:
        return len(env.actors[actor].asset.sensors)

    def get_sim_force_sensor_count(self, sim: Simulation) -> int:
        sensors = (actor.asset.sensors for env in sim.envs for actor in env.actors)
        return sum(map(len, sensors)) + sum(len(env.force_sensors) for env in sim.envs)

    def get_actor_force_sensor(self, env: Env, actor: int, index: int) -> ForceSensor:
        before = sum(len(earlier.asset.sensors) for earlier in env.actors[:actor])
        return ForceSensor(env.sim, env.index * len(env.sim.layout.sensors) + before + index)


def _dof_rows(env: Env, actor: int) -> slice:
    first = env.index * env.sim.engine.num_dofs + env.first("dof_names", actor)
    return slice(first, first + len(env.actors[actor].asset.dof_names))


def _add_commands(setter: str, commands: str, getter: str = "") -> None:
    """Add methods for the commands ``Engine.<commands>`` of an actor, which can be set before the scene is compiled."""

    def get_commands(self: StateMethods, env: Env, actor: int) -> np.ndarray:
        if env.sim.compiled:
            return getattr(env.sim.engine, commands).view(-1)[_dof_rows(env, actor)].cpu().numpy().copy()
        record = env.actors[actor]
        return record.commands.get(commands, np.zeros(len(record.asset.dof_names), np.float32)).copy()

    def set_commands(self: StateMethods, env: Env, actor: int, values: np.ndarray) -> bool:
        numbers, record = np.array(values, dtype=np.float32).reshape(-1), env.actors[actor]
        if len(numbers) != len(record.asset.dof_names):
            raise ValueError(f"{setter}: {len(numbers)} values for {len(record.asset.dof_names)} DOFs")
        if not env.sim.compiled:
            record.commands[commands] = numbers

        def change() -> None:
            engine = env.sim.engine
            getattr(engine, commands).view(-1)[_dof_rows(env, actor)] = torch.tensor(numbers, device=engine.device)

        env.sim.when_compiled(change)
        return True

    setattr(StateMethods, setter, set_commands)
    if getter:
        setattr(StateMethods, getter, get_commands)


for _kind in ("position", "velocity"):
    _name = f"actor_dof_{_kind}_targets"
    _add_commands(f"set_{_name}", f"{_kind}_targets", f"get_{_name}")
_add_commands("apply_actor_dof_efforts", "efforts")
