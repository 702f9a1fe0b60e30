"""The actors of an Isaac Gym simulation: names, limits, drives, and the states that candidates may set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.sim.joint_facts import joint_facts
from envcoder_bench.sources.isaacgym_tasks.gym_proxy import GymProxy, OwnProperties, inertial

POS, VEL, EFFORT = 1, 2, 3  # gymapi's DOF_MODE_*


@dataclass(frozen=True)
class Actor:
    """An actor by its handle and its place among those of an environment; bodies and DOFs are those of its tensors."""

    handle: int
    place: int
    bodies: slice
    dofs: slice
    body_names: tuple[str, ...]


class Scene:
    """Actors of the environments, read and written through ``gym`` alone; all environments have the same actors.

    Attributes:
        envs: handles of the environments.
        robot: the first actor with DOFs; None without one.
        num_dofs: number of DOFs of an environment.
        dof_names, body_names: in the order of the tensors, prefixed with the actor's name if there are several actors.
        objects: keys of the state for free actors other than the first, with their index in the environment.
        keys: keys of the state that candidates' initial states may set.
        limits: ``dof_limits_lower``, ``dof_limits_upper`` and ``effort_limits`` of the DOFs.
        drive_gains: ``stiffness`` and ``damping`` of the DOFs, as the task set them in the first environment.
        refusals: candidate functions that the scene does not support, with the reason.
    """

    def __init__(self, gym: GymProxy, sim: Any, num_envs: int) -> None:
        self._gym, self._sim, self._num_envs = gym, sim, num_envs
        envs = [gym.get_env(sim, k) for k in range(num_envs)]
        self.envs = envs
        first = envs[0]
        self._actors = [gym.get_actor_handle(first, k) for k in range(gym.get_actor_count(first))]
        names = [gym.get_actor_name(first, actor) for actor in self._actors]
        counts = [gym.get_actor_dof_count(first, actor) for actor in self._actors]
        self._dof_counts, self.num_dofs = counts, sum(counts)
        self.robot = self._first_with_dofs(counts)
        driven = [name for name, count in zip(names, counts) if count]
        self.dof_names = self._names("dof", names, len(driven) > 1)
        self.body_names = self._names("rigid_body", names, len(names) > 1)
        self._properties = {a: gym.get_actor_dof_properties(first, a) for a, n in zip(self._actors, counts) if n}
        self._own_properties: dict[tuple[int, int], np.ndarray] = {}  # what randomized actors had before
        self._roots = gym.acquire_actor_root_state_tensor(sim)
        self._roots = _torch(self._roots)
        self._dofs = _torch(gym.acquire_dof_state_tensor(sim)) if self.num_dofs else None
        gym.refresh_actor_root_state_tensor(sim)
        if self._dofs is not None:
            gym.refresh_dof_state_tensor(sim)
        self.objects = self._free_objects(names)
        self.keys = ("root_states", *(("dof_pos", "dof_vel") if self.num_dofs else ()), *self.objects)
        self.own_properties = gym.own_properties = OwnProperties(gym, sim, envs)
        self._mode_of: list[int] = [0] * num_envs
        self._read_limits()

    def _first_with_dofs(self, counts: list[int]) -> Actor | None:
        place = next((k for k, count in enumerate(counts) if count), None)
        if place is None:
            return None
        bodies = [self._gym.get_actor_rigid_body_count(self.envs[0], actor) for actor in self._actors]
        first, handle = sum(bodies[:place]), self._actors[place]
        names = tuple(self._gym.get_actor_rigid_body_names(self.envs[0], handle))
        return Actor(handle, place, slice(first, first + bodies[place]), slice(0, counts[place]), names)

    def _names(self, kind: str, actors: list[str], several: bool) -> tuple[str, ...]:
        names_of_kind: list[str] = []
        for handle, actor in zip(self._actors, actors):
            names = getattr(self._gym, f"get_actor_{kind}_names")(self.envs[0], handle)
            names_of_kind += [f"{actor}/{name}" if several else name for name in names]
        return tuple(names_of_kind)

    def _free_objects(self, names: list[str]) -> dict[str, int]:
        """Return actors of one body other than the first, by their keys in the state."""
        objects: dict[str, int] = {}
        for k, (actor, name) in enumerate(zip(self._actors, names)):
            if k and self._gym.get_actor_rigid_body_count(self.envs[0], actor) == 1:
                objects[f"{name}_state" if f"{name}_state" not in objects else f"{name}{k}_state"] = k
        return objects

    def _read_limits(self) -> None:
        rows = np.concatenate(list(self._properties.values())) if self._properties else None
        self.limits: dict[str, Tensor] = {}
        self.drive_gains: dict[str, Tensor] = {}
        self.refusals: dict[str, str] = {}
        self._has_position_drives = rows is not None and bool((rows["stiffness"] > 0).any())
        if rows is not None:
            for key, name in (
                ("dof_limits_lower", "lower"),
                ("dof_limits_upper", "upper"),
                ("effort_limits", "effort"),
            ):
                self.limits[key] = torch.tensor(rows[name].astype(float), dtype=torch.float32)
            for name in ("stiffness", "damping"):
                self.drive_gains[name] = torch.tensor(rows[name].astype(float), dtype=torch.float32)
        # functions for which the joints have no drives
        if rows is None:
            why = "this task has no joints"
            self.refusals = {"compute_torque": why, "compute_dof_target": why}
        elif not self._has_position_drives:
            self.refusals["compute_dof_target"] = (
                "this task's joints have no position drives (their stiffness is 0): define compute_torque"
            )

    def joint_facts(
        self, dof_pos: Sequence[float], keys: Mapping[str, str]
    ) -> tuple[dict[str, str], list[str], list[float]]:
        """Return axes and signs of the DOFs by name, nothing on efforts, and the masses of bodies that move.

        They are those of the first environment as it is, with ``dof_pos``, and before a randomization of masses. With
        NVIDIA's ``isaacgym`` there is no model to ask. See ``sim/joint_facts.py``.
        """
        engine = getattr(self._sim, "engine", None)
        if engine is None:
            return {}, [], []
        poses = engine.pose_source()
        model, qpos = poses.model, np.array(poses.qpos[0], dtype=float)
        # in the engine's model, names begin with the number of their actor
        kinds = [getattr(self._gym, f"get_actor_{kind}_names") for kind in ("dof", "rigid_body")]
        dofs, bodies = (
            [f"{k}/{x}" for k, actor in enumerate(self._actors) for x in names(self.envs[0], actor)] for names in kinds
        )
        joints = {name: model.joint(x).id for name, x in zip(self.dof_names, dofs)}
        qpos[[int(model.jnt_qposadr[joint]) for joint in joints.values()]] = dof_pos
        # a fixed base is moved by hand alone
        ids = np.array([model.body(x).id for x in bodies])
        moves = (model.body_weldid[ids] > 0) & (model.body_mocapid[model.body_weldid[ids]] < 0)
        masses = np.where(moves, model.body_mass[ids], 0.0).tolist()
        return joint_facts(model, qpos, joints, keys), [], masses

    def read(self) -> dict[str, Tensor]:
        """Return the states of ``keys`` as live views ``(num_envs, ...)``."""
        roots = self._roots.view(self._num_envs, -1, 13)
        states = {"root_states": roots[:, 0]}
        if self._dofs is not None:
            dofs = self._dofs.view(self._num_envs, -1, 2)
            states["dof_pos"], states["dof_vel"] = dofs[..., 0], dofs[..., 1]
        states.update({key: roots[:, k] for key, k in self.objects.items()})
        return states

    def roots(self, actor: Actor) -> Tensor:
        """Return the root states of an actor as a live view ``(num_envs, 13)``."""
        return self._roots.view(self._num_envs, -1, 13)[:, actor.place]

    def write(self, mask: Tensor, states: dict[str, Tensor]) -> None:
        """Set the states of ``keys`` where ``mask`` is True, from values for all environments."""
        rows = mask.unsqueeze(1)
        live = self.read()
        for key in self.keys:
            live[key].copy_(torch.where(rows, states[key], live[key]))
        actors = torch.arange(self._num_envs * len(self._actors), dtype=torch.int32, device=mask.device)
        actors = actors.view(self._num_envs, -1)[mask]
        moved = actors[:, [0, *self.objects.values()]].flatten().contiguous()
        self._gym.set_actor_root_state_tensor_indexed(self._sim, self._roots, moved, len(moved))
        if self._dofs is not None:
            with_dofs = [k for k, count in enumerate(self._dof_counts) if count]
            moved = actors[:, with_dofs].flatten().contiguous()
            self._gym.set_dof_state_tensor_indexed(self._sim, self._dofs, moved, len(moved))

    def set_drives(self, commanded: Tensor, effort: Tensor) -> None:
        """Set the drives of environments that candidates command, with efforts or targets; others keep the task's."""
        # a change of properties is expensive: only where the mode is another one
        for k, (commands, motor) in enumerate(zip(commanded.tolist(), effort.tolist())):
            mode = 0 if not commands else EFFORT if motor else POS
            if mode == self._mode_of[k]:
                continue
            self._mode_of[k] = mode
            for actor, properties in self._properties.items():
                own_drives = self._own_properties.get((k, actor))
                self._set_drives(k, actor, properties if own_drives is None else own_drives)

    def _set_drives(self, env: int, actor: int, asked: np.ndarray) -> None:
        """Set properties of an actor's DOFs, with the drives that the environment's candidate commands."""
        properties, mode = asked.copy(), self._mode_of[env]
        if mode == EFFORT:
            # in this mode gains act as spring and damper; joints without drives keep theirs
            driven = np.isin(asked["driveMode"], (POS, VEL))
            for gain in ("stiffness", "damping"):
                properties[gain] = np.where(driven, 0.0, asked[gain])
            properties["driveMode"] = np.where(driven, EFFORT, asked["driveMode"])
        elif mode == POS:
            properties["driveMode"] = np.where(properties["stiffness"] > 0, POS, properties["driveMode"])
        self._gym.set_actor_dof_properties(self.envs[env], actor, properties)

    def set_dof_properties(self, env: int, actor: int, values: Mapping[str, np.ndarray]) -> None:
        """Set columns ``(dofs,)`` of the properties of an actor's DOFs, whoever commands its drives."""
        if (env, actor) not in self._own_properties:
            commanded = self._mode_of[env] != 0  # then the present properties are not the task's
            properties = (
                self._properties[actor] if commanded else self._gym.get_actor_dof_properties(self.envs[env], actor)
            )
            self._own_properties[env, actor] = properties.copy()
        rows = self._own_properties[env, actor]
        for name, x in values.items():
            rows[name] = x
        self._set_drives(env, actor, rows)

    def make_alike(self, lanes: Tensor) -> None:
        """Copy properties of shapes, bodies and DOFs to every environment from the one whose index is its lane."""
        gym, first = self._gym, lanes.tolist()
        for actor in self._actors:
            shapes = [[s.friction for s in gym.get_actor_rigid_shape_properties(env, actor)] for env in self.envs]
            bodies = [[inertial(b) for b in gym.get_actor_rigid_body_properties(env, actor)] for env in self.envs]
            driven = actor in self._properties
            dofs = [gym.get_actor_dof_properties(env, actor) for env in self.envs] if driven else []
            for k, lane in enumerate(first):
                if shapes[k] != shapes[lane]:
                    properties = gym.get_actor_rigid_shape_properties(self.envs[lane], actor)
                    gym.set_actor_rigid_shape_properties(self.envs[k], actor, properties)
                if bodies[k] != bodies[lane]:
                    properties = gym.get_actor_rigid_body_properties(self.envs[lane], actor)
                    gym.set_actor_rigid_body_properties(self.envs[k], actor, properties, False)
                if driven and not np.array_equal(dofs[k], dofs[lane]):
                    gym.set_actor_dof_properties(self.envs[k], actor, dofs[lane])

    def get_state(self) -> dict[str, Tensor]:
        """Return the simulation's state on the CPU; with NVIDIA's ``isaacgym``, only positions and velocities."""
        engine = getattr(self._sim, "engine", None)
        if engine is not None:
            return engine.get_state()
        state = {"roots": self._roots.to("cpu", copy=True)}
        return state if self._dofs is None else {**state, "dofs": self._dofs.to("cpu", copy=True)}

    def take_overflows(self) -> Tensor | bool:
        """Return where contacts were dropped since the last call, ``(num_envs,)``; False with NVIDIA's ``isaacgym``."""
        engine = getattr(self._sim, "engine", None)
        return False if engine is None else engine.take_overflows()

    def undo_others(self, env_ids: Tensor, state: dict[str, Tensor]) -> None:
        """Restore the rows of ``state``, from ``get_state``, except those of the environments ``env_ids``."""
        kept = torch.zeros(self._num_envs, 1, dtype=torch.bool)
        kept[env_ids.cpu()] = True
        now = self.get_state()
        for key, x in now.items():
            if x.dim() and "roots" not in state:
                rows = (self._num_envs, -1)
                now[key] = torch.where(kept, x.reshape(rows), state[key].reshape(rows)).reshape(x.shape)
        if "roots" not in state:  # NVIDIA's simulations cannot be restored in part
            self.set_state(now)

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Restore what ``get_state`` returned."""
        if "roots" not in state:
            self._sim.engine.set_state(state)
            return
        self._roots.copy_(state["roots"])
        self._gym.set_actor_root_state_tensor(self._sim, self._roots)
        if self._dofs is not None:
            self._dofs.copy_(state["dofs"])
            self._gym.set_dof_state_tensor(self._sim, self._dofs)


def _torch(tensor: Any) -> Tensor:
    if isinstance(tensor, Tensor):
        return tensor
    from isaacgym import gymtorch  # type: ignore[import-not-found]

    return gymtorch.wrap_tensor(tensor)
