"""The robot of a task of mjlab, as the stress test disturbs and watches it.

Model fields are set per world by the interface that mjlab's own randomization uses: factors and shifts on top of what
startup events have set, while a drawn friction replaces theirs. Sensors err by changes of the arrays that observations
read, which are undone before anything else reads them.
"""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import warp as wp
from mjlab.managers.event_manager import RecomputeLevel
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError
from envcoder_bench.sim.base import Variation
from envcoder_bench.sim.mjlab.model_facts import effort_limits, linear_actuators, quantity
from envcoder_bench.sim.mujoco_model import LEAST_FRICTION, outermost_geom
from envcoder_bench.sources.term_tasks.robot import TermRobot

TOUCH = "stress_touch"  # the sensor of all contacts
VARIED = (
    "geom_friction", "body_mass", "body_inertia", "body_ipos",
    "actuator_gainprm", "actuator_biasprm", "actuator_forcerange", "jnt_actfrcrange",
)  # fmt: skip


def robot_name(entities: Mapping[str, Any]) -> str:
    """Return the first entity with actuators, by its config. Raises UserError without one."""
    for name, cfg in entities.items():
        if getattr(getattr(cfg, "articulation", None), "actuators", ()):
            return name
    raise UserError("no entity of the task has actuators, so that it does not have a robot")


def touch_sensor(entities: Mapping[str, Any]) -> Any:
    """Return the config of a sensor of the net contact force on each body of the robot."""
    from mjlab.sensor import ContactMatch, ContactSensorCfg

    primary = ContactMatch(mode="body", pattern=".*", entity=robot_name(entities))
    return ContactSensorCfg(name=TOUCH, primary=primary, fields=("found", "force"), reduce="netforce", num_slots=1)


def is_linear_velocity(model: Any, sensor: str) -> bool:
    """Return whether a model has a sensor of this name that measures a linear velocity."""
    return any(model.sensor(k).name == sensor and quantity(model, k) == "linear_velocity" for k in range(model.nsensor))


class MjlabRobot(TermRobot):
    """The first entity with actuators.

    Args:
        world: the world of a task of mjlab, with ``touch_sensor``.
        events: those that set fields of VARIED where an episode begins.
    """

    def __init__(self, world: Any, events: Sequence[str] = ()) -> None:
        self._sim, self.name = world.sim, robot_name(world.cfg.scene.entities)
        model, self._entity = world.sim.mj_model, world.scene.entities[self.name]
        entity, self._bodies = self._entity, self._entity.indexing.body_ids.tolist()
        super().__init__(world, model, self._bodies, entity.body_names, not entity.is_fixed_base)
        self.notes += [f"the event {name} replaces numbers of the draws where an episode begins" for name in events]
        self._joints = [model.joint(f"{self.name}/{joint}").id for joint in entity.joint_names]
        self._set_limits()
        touched = self._world.scene.sensors[TOUCH].primary_names
        # indices on the device: lists would be copied to it in each step
        self._touched = self._indices([touched.index(body) for body in self.body_names])
        self._forced = self._indices(self._bodies)
        self._xyzw, self._wxyz = self._indices([1, 2, 3, 0]), self._indices([3, 0, 1, 2])
        self.feet = self._find_feet()
        # what sensors measure
        casting = [x for x in self._world.scene.sensors.values() if hasattr(x, "_ray_dist")]
        self._rays = [(sensor, wp.to_torch(sensor._ray_dist)) for sensor in casting]
        self._set_sensors(len(self._joints), sum(x.shape[1] for _, x in self._rays))
        self._measured = list(self._built_in_sensors())

    def _set_limits(self) -> None:
        model, joints = self._model, self._joints
        ranged = model.jnt_limited[joints].astype(bool)[:, None]
        limits = torch.from_numpy(np.where(ranged, model.jnt_range[joints], [[-np.inf, np.inf]])).float()
        self.dof_limits_lower, self.dof_limits_upper = limits.unbind(1)
        efforts = effort_limits(model, joints)
        for actuator in self._drives():  # a drive in Python has a limit of its own
            place = actuator.target_ids.cpu().numpy()
            efforts[place] = np.minimum(efforts[place], actuator.force_limit[0].cpu().numpy())
        self.effort_limits = torch.from_numpy(efforts).float()

    def _drives(self) -> list[Any]:
        """Return the actuators whose gains are Python's, not the model's."""
        return [x for x in self._entity.actuators if hasattr(x, "stiffness") and hasattr(x, "force_limit")]

    def _find_feet(self) -> list[int] | None:
        """Return the bodies of the first contact sensor with feet in its name."""
        for name, sensor in self._world.scene.sensors.items():
            match = getattr(getattr(sensor, "cfg", None), "primary", None)
            if not re.search("foot|feet", name) or getattr(match, "entity", None) != self.name:
                continue
            assert match is not None
            geoms = match.mode == "geom"
            ids = [self._model.geom(f"{self.name}/{x}").bodyid[0] for x in sensor.primary_names] if geoms else []
            names = [self._model.body(k).name.rpartition("/")[2] for k in ids] or sensor.primary_names
            return [self.body_names.index(body) for body in dict.fromkeys(names)]
        return None

    def _built_in_sensors(self) -> Iterator[tuple[int, int, str, int]]:
        """Yield address, width, quantity and its first column of the robot's own sensors that err.

        Sensors of joints err as their joint. All sensors of velocities and axes, wherever they are, err as the base.
        """
        model, joints = self._model, [self._model.joint(x).name for x in self._joints]
        for k in range(model.nsensor):
            measured, address = quantity(model, k), int(model.sensor_adr[k])
            if not model.sensor(k).name.startswith(f"{self.name}/"):
                continue
            if measured not in ("dof_pos", "dof_vel"):
                if measured in self.sensors:
                    yield address, 3, measured, 0
            elif model.joint(model.sensor_objid[k]).name in joints:
                yield address, 1, measured, joints.index(model.joint(model.sensor_objid[k]).name)

    # the state after a step

    @property
    def root_states(self) -> Tensor:
        data = self._entity.data
        pose, velocity = data.root_link_pose_w, data.root_link_vel_w
        if not self.floating:
            velocity = torch.zeros_like(velocity)
        return torch.cat([pose[:, :3], pose[:, 3:][:, self._xyzw], velocity], dim=1)

    @property
    def dof_pos(self) -> Tensor:
        return self._entity.data.joint_pos

    @property
    def dof_vel(self) -> Tensor:
        return self._entity.data.joint_vel

    @property
    def dof_force(self) -> Tensor:
        return self._entity.data.qfrc_actuator

    @property
    def contact_forces(self) -> Tensor:
        return self._world.scene.sensors[TOUCH].data.force[:, self._touched]

    def track(self, bodies: Sequence[int]) -> Callable[[], Tensor]:
        geoms = self._indices([outermost_geom(self._model, self._bodies[body]) for body in bodies])
        return lambda: self._sim.data.geom_xpos[:, geoms]

    # disturbances

    def vary(self, variation: Variation) -> None:
        sim, model = self._sim, self._model
        friction, mass, com, strength, gains = (x.float().to(self._world.device) for x in vars(variation).values())
        sim.expand_model_fields(VARIED)
        fields = {name: getattr(sim.model, name) for name in VARIED}
        drawn = friction.clamp(min=LEAST_FRICTION).unsqueeze(1)
        sliding = fields["geom_friction"][..., 0]
        fields["geom_friction"][..., 0] = torch.where(torch.isnan(drawn), sliding, drawn)
        base = self._bodies[self.base]
        fields["body_mass"][:, base] *= mass
        fields["body_inertia"][:, base] *= mass.unsqueeze(1)
        fields["body_ipos"][:, base, 0] += com
        plain, driven = linear_actuators(model)
        factor = torch.ones(len(mass), model.nu, device=mass.device)
        factor[:, torch.from_numpy(plain)] *= strength.unsqueeze(1)
        factor[:, torch.from_numpy(driven)] *= gains.unsqueeze(1)
        for name in ("actuator_gainprm", "actuator_biasprm"):
            fields[name][..., :3] *= factor.unsqueeze(2)
        for name in ("actuator_forcerange", "jnt_actfrcrange"):
            fields[name][:] *= strength.view(-1, 1, 1)  # mjlab's arrays are not multiplied in place
        for actuator in self._drives():
            actuator.stiffness *= gains.unsqueeze(1)
            actuator.damping *= gains.unsqueeze(1)
        sim.recompute_constants(RecomputeLevel.set_const)
        if not plain.all():
            others = ", ".join(model.actuator(int(k)).name for k in np.flatnonzero(~plain))
            self.notes.append(f"strength, gains: of {others} the limits of the effort alone, as they are not linear")

    def apply_forces(self, forces: Tensor) -> None:
        self._world.pushed = (self._forced, forces)

    def tilt(self, gravity: Tensor) -> bool:
        self._entity.data.gravity_vec_w.copy_(gravity)
        return True

    @contextmanager
    def erring(self) -> Iterator[None]:
        """Let observations inside the block read what sensors measure, and restore the arrays after it."""
        if not self._errors:
            yield
            return
        data, where = self._sim.data, self._entity.indexing
        arrays = {name: getattr(data, name)[:] for name in ("qpos", "qvel", "xquat", "cvel", "sensordata")}
        for sensor, rays in self._rays:
            rays.masked_fill_(rays > sensor.cfg.max_distance, -1.0)  # misses, as mjlab marks them
        changed = [*arrays.values(), *(rays for _, rays in self._rays)]
        before = [x.clone() for x in changed]
        errors = self._errors
        arrays["qpos"][:, where.joint_q_adr] += errors["dof_pos"]
        arrays["qvel"][:, where.joint_v_adr] += errors["dof_vel"]
        if self.floating:
            root = where.root_body_id
            lever = data.subtree_com[:, root] - data.xpos[:, root]
            arrays["cvel"][:, root, :3] += errors["angular_velocity"]
            arrays["cvel"][:, root, 3:] += errors["linear_velocity"] + torch.cross(
                errors["angular_velocity"], lever, dim=1
            )
            quat = noise.turned(arrays["xquat"][:, root][:, self._xyzw], errors["orientation"])
            arrays["xquat"][:, root] = quat[:, self._wxyz]
        for address, width, measured, column in self._measured:
            arrays["sensordata"][:, address : address + width] += errors[measured][:, column : column + width]
        first = 0
        for sensor, rays in self._rays:
            error = errors["measured_heights"][:, first : first + rays.shape[1]]
            rays.copy_(torch.where(rays >= 0.0, (rays + error).clamp(0.0, sensor.cfg.max_distance), rays))
            first += rays.shape[1]
        try:
            yield
        finally:
            for x, old in zip(changed, before):
                x.copy_(old)
            for sensor, rays in self._rays:  # in place, because captured graphs read them
                way = sensor._cached_world_rays * rays.clamp(min=0.0).unsqueeze(-1)
                sensor._hit_pos_w.copy_(sensor._cached_world_origins + way)
            self._world.forget()
