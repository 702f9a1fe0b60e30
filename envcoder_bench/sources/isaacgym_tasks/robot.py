"""The robot of an Isaac Gym task on the open ``isaacgym``, as the stress test disturbs and watches it.

Forces and weaker motors act in every ``simulate``. Sensors err in the tensors of ``gym``, and in those that legged_gym
keeps of the base, while the task's own observation reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.sim.base import Robot, Variation
from envcoder_bench.sim.mujoco_model import outermost_geom
from envcoder_bench.sim.varied_engine import FRICTIONS, NO_LIMIT, vary_engine
from envcoder_bench.sources.isaacgym_tasks.driver import Driver, of_base
from envcoder_bench.sources.isaacgym_tasks.gym_proxy import STATES
from envcoder_bench.sources.isaacgym_tasks.scene import Actor, Scene
from envcoder_bench.torch_utils import quat_rotate

_GAINS = ("p_gains", "d_gains")  # legged_gym's drives are Python


class IsaacRobot(Robot):
    """The first actor with joints.

    Args:
        isaac: the task of Isaac Gym code; its simulation has an ``engine``.
        driver, scene: of the task.
        actor: the robot.
        changed: called when tensors of the task have been set.
    """

    def __init__(self, isaac: Any, driver: Driver, scene: Scene, actor: Actor, changed: Callable[[], None]) -> None:
        self._isaac, self._driver, self._scene, self._gym = isaac, driver, scene, driver.gym
        self._engine = engine = isaac.sim.engine
        self._model, self._device, self._changed = engine.pose_source().model, driver.device, changed
        self.notes: list[str] = []
        self._actor, self._bodies, self._dofs = actor, actor.bodies, actor.dofs
        self.body_names = list(actor.body_names)
        self._ids = [self._model.body(f"{actor.handle}/{name}").id for name in self.body_names]
        moves = self._model.body_dofnum[self._model.body_weldid[self._ids]] > 0
        self.floating = int(self._model.body_dofnum[self._ids[0]]) == 6
        masses = np.array([body.mass for body in self._properties(0)])
        self.body_masses = torch.from_numpy(masses).float()
        self.base = 0 if self.floating else int(np.where(moves, masses, -1.0).argmax())
        limits = {name: x[self._dofs].clone() for name, x in scene.limits.items()}
        for x in limits.values():
            x[x.abs() > NO_LIMIT] = torch.inf * x[x.abs() > NO_LIMIT].sign()
        self.dof_limits_lower, self.dof_limits_upper = limits["dof_limits_lower"], limits["dof_limits_upper"]
        self.effort_limits = limits["effort_limits"]
        speeds = self._gym.get_actor_dof_properties(scene.envs[0], actor.handle)["velocity"].astype(float)
        self.velocity_limits = torch.from_numpy(np.where(speeds < NO_LIMIT, speeds, np.inf)).float()
        joints = len(self.effort_limits)
        base = {"linear_velocity": 3, "angular_velocity": 3, "orientation": 3} if self.floating else {}
        heights = getattr(isaac, "measured_heights", None)
        rays = {"measured_heights": heights.shape[1]} if isinstance(heights, Tensor) and heights.dim() == 2 else {}
        self.sensors = {"dof_pos": joints, "dof_vel": joints, **base, **rays}
        self._read = {name: engine.tensor(name) for name in ("dof_forces", "contact_forces", "bodies")}
        self._errors: Mapping[str, Tensor] = {}
        self._asked: Tensor | None = None
        self._forces = torch.zeros(engine.num_envs, len(self._ids), 3, device=self._device)

    def _properties(self, env: int) -> Any:
        return self._gym.get_actor_rigid_body_properties(self._scene.envs[env], self._actor.handle)

    # the state after a step

    def _states(self) -> dict[str, Tensor]:
        for name in STATES:
            if name in self._gym.acquired:
                getattr(self._gym, name)(self._isaac.sim)
        return self._scene.read()

    @property
    def root_states(self) -> Tensor:
        self._states()
        return self._scene.roots(self._actor)

    @property
    def dof_pos(self) -> Tensor:
        return self._states()["dof_pos"][:, self._dofs]

    @property
    def dof_vel(self) -> Tensor:
        return self._states()["dof_vel"][:, self._dofs]

    def _quantity(self, name: str, width: int) -> Tensor:
        self._engine.read(name, self._read[name])
        return self._read[name].view(self._engine.num_envs, -1, width)

    @property
    def dof_force(self) -> Tensor:
        return self._quantity("dof_forces", 1)[:, self._dofs, 0]

    @property
    def contact_forces(self) -> Tensor:
        return self._quantity("contact_forces", 3)[:, self._bodies]

    def track(self, bodies: Sequence[int]) -> Callable[[], Tensor]:
        geoms = [outermost_geom(self._model, self._ids[body]) for body in bodies]
        places = torch.from_numpy(self._model.geom_pos[geoms]).float().to(self._device)
        index = torch.tensor(bodies, device=self._device)

        def points() -> Tensor:
            states = self._quantity("bodies", 13)[:, self._bodies][:, index]
            quats = states[..., 3:7].reshape(-1, 4)
            turned = quat_rotate(quats, places.expand(len(states), -1, -1).reshape(-1, 3))
            return states[..., :3] + turned.view(*states.shape[:2], 3)

        return points

    # disturbances

    def vary(self, variation: Variation) -> None:
        """Change the engine's properties, now and whenever the task or its randomization sets them.

        ``gym`` keeps the task's values, so that nothing is changed twice.
        """
        engine, base = self._engine, self._ids[self.base]
        friction, mass, com = (x.numpy() for x in (variation.friction, variation.mass, variation.com))
        vary_engine(engine, variation, base, self._bodies, self._dofs, self._forces)
        sliding = {name: getattr(self._model, name) for name in FRICTIONS}
        rows = {name: (np.arange(len(x)), x) for name, x in sliding.items() if len(x)}
        for k, env in enumerate(self._scene.envs):
            if not np.isnan(friction[k]):
                engine.set_model_fields(k, rows)
            if (mass[k], com[k]) != (1.0, 0.0):
                others = [None if body == self.base else x for body, x in enumerate(self._properties(k))]
                env.apply_bodies(self._actor.handle, others)  # the base alone
        self._vary_drives(variation.gains.float().to(self._device))
        self._changed()

    def _vary_drives(self, gains: Tensor) -> None:
        """Set the drives of the engine anew, and scale those in Python."""
        envs, handle = self._scene.envs, self._actor.handle
        properties = np.stack([self._gym.get_actor_dof_properties(env, handle) for env in envs])
        self._engine.set_dof_properties(None, self._dofs, properties)
        driven = bool((properties["driveMode"] > 0).any() and (properties["stiffness"] > 0).any())
        by_network = hasattr(self._isaac, "actuator_network")
        in_python = [x for x in _GAINS if isinstance(getattr(self._isaac, x, None), Tensor) and not by_network]
        widths = (len(self._scene.limits["effort_limits"]), len(self.effort_limits), self._driver.num_actions)
        for name in in_python:
            x = getattr(self._isaac, name)
            if x.dim() in (1, 2) and x.shape[-1] in widths and x.shape[:-1] in ((), (1,), (len(gains),)):
                setattr(self._isaac, name, x * gains.unsqueeze(1))
            else:
                self.notes.append(f"gains: {name} of shape {tuple(x.shape)} is not (num_envs, dofs) or (dofs,)")
        if not driven and not in_python:
            self.notes.append("gains: the task commands efforts, so that there are no drives whose gains differ")

    def apply_forces(self, forces: Tensor) -> None:
        self._forces.copy_(forces)

    def tilt(self, gravity: Tensor) -> bool:
        seen = getattr(self._isaac, "gravity_vec", None)
        if not isinstance(seen, Tensor) or seen.shape != gravity.shape:
            return False
        seen.copy_(gravity)
        self._changed()
        return True

    def measure(self, errors: Mapping[str, Tensor], actions: Tensor) -> None:
        self._errors, self._asked = errors, actions

    @contextmanager
    def erring(self, applied: Tensor) -> Iterator[None]:
        """Let observations inside the block read what sensors measure, and the actions as they were asked.

        Args:
            applied: the actions that the task was given in this step, ``(num_envs, width)``.
        """
        isaac, before = self._isaac, []
        states = self._states()

        def change(x: Tensor, new: Tensor) -> None:
            before.append((x, x.clone()))
            x.copy_(new)

        shown = getattr(isaac, "actions", None)
        if self._asked is not None and isinstance(shown, Tensor) and shown.shape[1] <= applied.shape[1]:
            late = (self._asked != applied).any(dim=1, keepdim=True)
            change(shown, torch.where(late, self._asked[:, : shown.shape[1]], shown))
        errors = self._errors
        if errors:
            for name in ("dof_pos", "dof_vel"):
                x = states[name][:, self._dofs]
                change(x, x + errors[name])
            if self.floating:
                self._change_base(self._scene.roots(self._actor), change)
            if "measured_heights" in errors:
                heights = isaac.measured_heights
                change(heights, heights + errors["measured_heights"])
        try:
            with self._gym.kept(STATES if errors else ()):
                yield
        finally:
            for x, old in reversed(before):
                x.copy_(old)

    def _change_base(self, roots: Tensor, change: Callable[[Tensor, Tensor], None]) -> None:
        """Let the pose and the velocities of the base err, also in the tensors that legged_gym keeps of it."""
        errors = self._errors
        noisy = torch.stack([x.abs().amax(dim=1) for x in errors.values()], dim=1).amax(dim=1, keepdim=True) > 0.0
        new = roots.clone()
        new[:, 3:7] = torch.where(noisy, noise.turned(roots[:, 3:7], errors["orientation"]), roots[:, 3:7])
        new[:, 7:10] += errors["linear_velocity"]
        new[:, 10:13] += errors["angular_velocity"]
        change(roots, new)
        for kept, x in of_base(self._isaac):
            change(kept, torch.where(noisy, x, kept))
