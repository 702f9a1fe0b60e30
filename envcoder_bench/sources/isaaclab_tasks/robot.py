"""The robot of a task of Isaac Lab, as the stress test disturbs and watches it.

The engine is varied below Isaac Lab, whose properties stay the task's: events add to the draws at any time. Sensors err
in what the robot's view returns, while observations are computed.
"""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from isaaclab.managers import SceneEntityCfg
from isaaclab.sensors import Imu, RayCaster
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError
from envcoder_bench.sim.base import Variation
from envcoder_bench.sim.mujoco_model import outermost_geom
from envcoder_bench.sim.varied_engine import NO_LIMIT, vary_engine
from envcoder_bench.sources.term_tasks.robot import TermRobot
from envcoder_bench.torch_utils import quat_rotate

_OF_BASE = ("body_mass", "body_inertia", "body_ipos")
_KEEPS = "_compute_intermediate_values"  # the method of many classes that keeps numbers of the scene


class IsaacLabRobot(TermRobot):
    """The first articulation with actuators.

    Args:
        world: the world of a task.
    """

    def __init__(self, world: Any) -> None:
        self._physics = world.sim.running
        self._asset = asset = _robot(world.scene.articulations)
        self._view, count = asset.root_physx_view, len(asset.joint_names)
        view, layout = self._view, self._physics.layout
        self._ids = layout.bodies[view.rows]
        super().__init__(world, layout.model, self._ids, asset.body_names, not asset.is_fixed_base)
        self._bodies = self._indices(view.rows)
        self.dof_limits_lower, self.dof_limits_upper = _unlimited(view.get_dof_limits()[0]).unbind(1)
        speeds = _unlimited(view.get_dof_max_velocities()[0])
        self.velocity_limits = torch.where(speeds > 0.0, speeds, torch.inf)
        efforts = torch.zeros(count, device=self._device)
        for actuator in asset.actuators.values():
            efforts[actuator.joint_indices] = actuator.effort_limit[0]
        self.effort_limits = _unlimited(efforts.cpu())
        self.feet = self._find_feet()
        sensors = list(world.scene.sensors.values())
        self._imus = [x for x in sensors if isinstance(x, Imu)] if self.floating else []
        self._rays = [x for x in sensors if isinstance(x, RayCaster)]
        self._set_sensors(count, sum(x.data.ray_hits_w.shape[1] for x in self._rays))
        self._forces = torch.zeros(self._physics.num_envs, len(self._ids), 3, device=self._device)
        self._shift = torch.zeros(self._physics.num_envs, 3, device=self._device)

    def _find_feet(self) -> list[int] | None:
        """Return the bodies of a contact sensor that the first reward term with feet in its name reads."""
        for name, term in self._world.dialect.terms(self._world.cfg, "rewards").items():
            called = f"{name} {getattr(term.func, '__name__', '')}".lower()
            for x in term.params.values() if re.search("foot|feet", called) else ():
                if isinstance(x, SceneEntityCfg) and x.name in self._world.scene.sensors and x.body_names:
                    patterns = [x.body_names] if isinstance(x.body_names, str) else x.body_names
                    named = "|".join(f"(?:{pattern})" for pattern in patterns)
                    return [k for k, body in enumerate(self.body_names) if re.fullmatch(named, body)] or None
        return None

    # the state after a step

    @property
    def root_states(self) -> Tensor:
        pose, velocity = self._view.get_root_transforms(), self._view.get_root_velocities()
        if not self.floating:
            return torch.cat([pose, torch.zeros_like(velocity)], dim=1)
        arm = quat_rotate(pose[:, 3:7], self._view.masses.values["com"][:, 0, :3].to(self._device) + self._shift)
        linear = velocity[:, :3] - torch.linalg.cross(velocity[:, 3:], arm)  # Isaac Lab's is of the centre of mass
        return torch.cat([pose, linear, velocity[:, 3:]], dim=1)

    @property
    def dof_pos(self) -> Tensor:
        return self._view.get_dof_positions()

    @property
    def dof_vel(self) -> Tensor:
        return self._view.get_dof_velocities()

    def _quantity(self, name: str, *width: int) -> Tensor:
        return self._physics.engine.tensor(name).view(self._physics.num_envs, -1, *width)

    @property
    def dof_force(self) -> Tensor:
        return (self._quantity("dof_forces") + self._physics.joint_forces)[:, self._view.columns]

    @property
    def contact_forces(self) -> Tensor:
        return self._quantity("contact_forces", 3)[:, self._bodies]

    def track(self, bodies: Sequence[int]) -> Callable[[], Tensor]:
        geoms = [outermost_geom(self._model, self._ids[body]) for body in bodies]
        places = torch.from_numpy(self._model.geom_pos[geoms]).float().to(self._device)
        rows = self._bodies[self._indices(bodies)]

        def points() -> Tensor:
            states = self._physics.bodies()[:, rows]
            quats = states[..., 3:7].reshape(-1, 4)
            turned = quat_rotate(quats, places.expand(len(states), -1, -1).reshape(-1, 3))
            return states[..., :3] + turned.view(*states.shape[:2], 3)

        return points

    # disturbances

    def vary(self, variation: Variation) -> None:
        physics, view, base = self._physics, self._view, self._ids[self.base]
        dofs = physics.layout.places[view.actor].dofs
        vary_engine(physics.engine, variation, base, self._bodies, dofs, self._forces)
        # set all properties anew
        for env in range(physics.num_envs):
            rows = {name: physics.fields.get(name, {env: getattr(self._model, name)})[env] for name in _OF_BASE}
            physics.set_fields(env, {name: (np.array([base]), x[[base]]) for name, x in rows.items()})
        physics.materials.changed[:] = True
        physics.changed.add(view.actor)
        physics.stale = True
        if self.floating:
            self._shift[:, 0] = variation.com.float().to(self._device)
        strength, gains = (x.float().to(self._device).unsqueeze(1) for x in (variation.strength, variation.gains))
        actuators = self._asset.actuators
        for actuator in actuators.values():
            _vary_actuator(actuator, strength, gains)
        if learned := [name for name, x in actuators.items() if hasattr(x, "network")]:
            self.notes.append(f"gains: the actuators {', '.join(learned)} are networks, which have no gains")
        if not any(bool((x.stiffness != 0.0).any() or (x.damping != 0.0).any()) for x in actuators.values()):
            self.notes.append("gains: the task commands efforts, so that there are no drives whose gains differ")

    def apply_forces(self, forces: Tensor) -> None:
        self._forces.copy_(forces)

    def tilt(self, gravity: Tensor) -> bool:
        for owner in (self._asset.data, *self._imus):
            if getattr(owner, "GRAVITY_VEC_W", None) is not None:
                owner.GRAVITY_VEC_W.copy_(gravity)
        self._world.forget()
        return True

    @contextmanager
    def erring(self) -> Iterator[None]:
        """Let observations inside the block read what sensors measure, and restore everything after it."""
        errors, view, kept = self._errors, self._view, []
        if not errors:
            yield
            return

        def change(x: Tensor, new: Tensor) -> None:
            kept.append((x, x.clone()))
            x.copy_(new)

        measured = {"get_dof_positions": errors["dof_pos"], "get_dof_velocities": errors["dof_vel"]}
        read = {name: getattr(view, name)() + error for name, error in measured.items()}
        if self.floating:
            pose, spin = view.get_root_transforms(), errors["angular_velocity"]
            quat = _turned(pose[:, 3:], errors["orientation"])
            read["get_root_transforms"] = torch.cat([pose[:, :3], quat], dim=1)
            velocity = torch.cat([errors["linear_velocity"], spin], dim=1)
            read["get_root_velocities"] = view.get_root_velocities() + velocity
        for imu in self._imus:
            data = imu.data
            change(data.ang_vel_b, data.ang_vel_b + errors["angular_velocity"])
            change(data.lin_vel_b, data.lin_vel_b + errors["linear_velocity"])
            change(data.quat_w, _turned(data.quat_w.roll(-1, dims=1), errors["orientation"]).roll(1, dims=1))
            if getattr(data, "projected_gravity_b", None) is not None:
                change(data.projected_gravity_b, _seen_from_turned(data.projected_gravity_b, errors["orientation"]))
        first = 0
        for sensor in self._rays:
            hits = sensor.data.ray_hits_w[..., 2]
            change(hits, hits + errors["measured_heights"][:, first : first + hits.shape[1]])
            first += hits.shape[1]
        for name, x in read.items():
            setattr(view, name, x.clone)
        self._world.forget()
        try:
            yield
        finally:
            for name in read:
                delattr(view, name)
            for x, old in kept:
                x.copy_(old)
            self._world.forget()


class DirectRobot(IsaacLabRobot):
    """The robot of a task whose environment is a class of its own, which keeps the actions itself.

    Sensors err in ``scene``, and in what ``_compute_intermediate_values`` keeps of it, if that needs no arguments.
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        if not world.shows_actions:
            self.notes.append("delay: the class observes actions as they were applied")
        self._compute = getattr(world.env, _KEEPS, None)
        if self._compute is not None and not _is_callable_alone(self._compute):
            # some derive velocities from the positions of the call before, which another call would make wrong
            self.notes.append(f"noise: {_KEEPS} needs arguments, so that what it keeps of the scene has no errors")
            self._compute = None

    def _find_feet(self) -> list[int] | None:
        return [k for k, body in enumerate(self.body_names) if re.search("foot|feet", body.lower())] or None

    def measure(self, errors: Mapping[str, Tensor], actions: Tensor) -> None:
        self._errors, self._asked = errors, actions

    def show_actions(self, actions: Tensor) -> None:
        pass

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Let the class observe inside the block what sensors measure, and late actions as they were asked."""
        env, changed = self._world.env, {}
        try:
            self._show(changed)
            with self.erring():
                self._keep(changed)
                yield
        finally:
            for name, (x, old) in changed.items():
                setattr(env, name, x)
                x.copy_(old)

    def _show(self, changed: dict[str, tuple[Tensor, Tensor]]) -> None:
        """Let the class have late actions as they were asked; note what that changes."""
        env = self._world.env
        if self._world.applied is not None:
            applied, given = self._world.applied
            shown, asked = env.actions, self._asked[:, : applied.shape[1]]
            late = (asked != applied).any(dim=1, keepdim=True) & (shown == given).all(dim=1, keepdim=True)
            changed["actions"] = shown, shown.clone()
            shown.copy_(torch.where(late, asked, shown))

    def _keep(self, changed: dict[str, tuple[Tensor, Tensor]]) -> None:
        """Let the class keep what sensors measure now; note what that changes."""
        if not self._errors or self._compute is None:
            return
        env = self._world.env
        before = {name: (x, x.clone()) for name, x in vars(env).items() if isinstance(x, Tensor)}
        try:
            self._compute()
        finally:
            for name, (x, old) in before.items():
                if getattr(env, name) is not x or not torch.equal(x, old):
                    changed.setdefault(name, (x, old))


def _robot(articulations: Mapping[str, Any]) -> Any:
    """Return the first articulation with actuators. Raises UserError without one."""
    for asset in articulations.values():
        if asset.actuators:
            return asset
    raise UserError("no articulation of the task has actuators, so that it does not have a robot")


def _is_callable_alone(method: Callable[..., Any]) -> bool:
    """Return whether a method can be called without arguments."""
    try:
        inspect.signature(method).bind()
    except TypeError:
        return False
    return True


def _unlimited(limits: Tensor) -> Tensor:
    return torch.where(limits.abs() < NO_LIMIT, limits, torch.inf * limits.sign())


def _turned(quat: Tensor, angles: Tensor) -> Tensor:
    """Turn quaternions xyzw by small angles about the body's axes; without an angle not a bit changes."""
    return torch.where((angles != 0.0).any(dim=1, keepdim=True), noise.turned(quat, angles), quat)


def _seen_from_turned(direction: Tensor, angles: Tensor) -> Tensor:
    """Return a direction in the frame of a body that is turned by small angles about its axes."""
    turned = direction - torch.linalg.cross(angles, direction)
    return torch.where((angles != 0.0).any(dim=1, keepdim=True), turned / turned.norm(dim=1, keepdim=True), direction)


def _vary_actuator(actuator: Any, strength: Tensor, gains: Tensor) -> None:
    """Scale the gains and the efforts of an actuator wherever it computes, by ``(num_envs, 1)``."""
    compute = actuator.compute

    def varied(*args: Any, **kwargs: Any) -> Any:
        stiffness, damping = actuator.stiffness, actuator.damping
        actuator.stiffness, actuator.damping = stiffness * gains, damping * gains
        try:
            command = compute(*args, **kwargs)
        finally:
            actuator.stiffness, actuator.damping = stiffness, damping
        actuator.applied_effort = actuator.applied_effort * strength
        if command.joint_efforts is not None:
            command.joint_efforts = command.joint_efforts * strength
        return command

    actuator.compute = varied
