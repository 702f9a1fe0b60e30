"""A robot's MJCF for both MuJoCo engines: time step, drives, ground, sensors, addresses, buffer sizes, tensors."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches
from envcoder_bench.sim.base import INTEGRATORS, Gains, Variation
from envcoder_bench.sim.ground import Ground
from mujoco_batches.physics.models import (
    add_contact_sensor,
    add_height_field,
    buffer_sizes,
    dofs_above,
    mass_addresses,
)

# A state outside these limits is unstable: at 1,000 rad/s a joint turns by 5 rad in a substep of 5 ms. With MuJoCo's
# own limit, 1e10, an unstable robot would go unnoticed for many control steps.
MAX_QPOS = 1e4  # m, rad
MAX_QVEL = 1e3  # m/s, rad/s

_CONTACT = mujoco.mjtSensor.mjSENS_CONTACT
# MjModel's arrays hold plain integers, which are not equal to MuJoCo's enumerators
_FREE = int(mujoco.mjtJoint.mjJNT_FREE)
_HINGE, _SLIDE = int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)
_NO_BIAS, _AFFINE_BIAS = int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)


@dataclass(frozen=True)
class SiteModel:
    """The sites of a robot, and the data of a site's Jacobian.

    Attributes:
        names: the names of the sites.
        bodies, roots: for each site, the ids of its body and of the first body of that body's tree.
        quats: for each site, its orientation in its body, wxyz.
        jacobian: index of the site in ``names``, or None.
        moves: for each joint, whether it moves the Jacobian site.
        inertia: ``(num_dofs, num_dofs)`` index of each entry of the mass matrix in MjData's ``M``; -1 where it is 0.
    """

    names: list[str]
    bodies: np.ndarray
    roots: np.ndarray
    quats: np.ndarray
    jacobian: int | None
    moves: np.ndarray
    inertia: np.ndarray


@dataclass(frozen=True)
class RobotModel:
    """A compiled robot, the addresses of its parts in MuJoCo's arrays, and the buffer sizes of its contacts.

    Attributes:
        mj_model: the compiled model; its sensordata is one contact force per body, then for each force-torque sensor
            the torque of its body's net contact force, 3, about a point, and that point, 3, in the world frame.
        substeps: physics steps per control step.
        floating: whether the robot has a free joint; its state then comes first in qpos (7) and qvel (6). Its joints
            follow, and then every object's free joint.
        dof_names, body_names: joints with one degree of freedom; bodies without the world.
        sensor_bodies: for each force-torque sensor, the index of its body in ``body_names``.
        object_names: bodies with a free joint that are not the robot's first.
        sites: the sites and the data of the Jacobian.
        dof_limits_lower, dof_limits_upper, effort_limits: as in ``Simulator``.
        actuated: for each actuator, the index of its joint in ``dof_names``.
        stiffness, damping: for each actuator, gains of its position drive, N m/rad and N m s/rad (or N/m, N s/m).
        max_pairs: pairs of geoms that can touch at once. One geom touches a few parts of the ground at most.
        max_convex: the most of these pairs that MuJoCo Warp compares at a time by its search for convex shapes, which
            needs much memory for each.
        max_contacts: the most contact points one robot has at once: the file's ``<numeric name="max_contacts">``, which
            is for a plane, twice that on height fields, else the sum over all pairs, an upper bound that most poses do
            not approach.
        max_constraints: rows of the constraint solver for ``max_contacts``, joint limits, dry friction and equalities.
    """

    mj_model: mujoco.MjModel
    substeps: int
    floating: bool
    dof_names: list[str]
    body_names: list[str]
    sensor_bodies: np.ndarray
    object_names: list[str]
    sites: SiteModel
    dof_limits_lower: Tensor
    dof_limits_upper: Tensor
    effort_limits: Tensor
    actuated: np.ndarray
    stiffness: np.ndarray
    damping: np.ndarray
    max_pairs: int
    max_convex: int
    max_contacts: int
    max_constraints: int

    @property
    def dt(self) -> float:
        """Seconds per control step."""
        return float(self.mj_model.opt.timestep) * self.substeps

    @property
    def sensor_names(self) -> list[str]:
        """Names of the bodies that have a force-torque sensor."""
        return [self.body_names[b] for b in self.sensor_bodies]

    @property
    def first_qpos(self) -> int:
        """Offset of the joints in qpos."""
        return 7 if self.floating else 0

    @property
    def first_qvel(self) -> int:
        """Offset of the joints in qvel."""
        return 6 if self.floating else 0

    @property
    def base(self) -> int:
        """Index in ``body_names`` of the first body, or without a free joint of the heaviest body that moves."""
        moving = np.where(self.mj_model.body_weldid[1:] == 0, -1.0, self.mj_model.body_mass[1:])
        return 0 if self.floating else int(moving.argmax())

    def varied(self, variation: Variation) -> dict[str, np.ndarray]:
        """Return the fields of MuJoCo's model that a variation changes, ``(num_envs, ...)``."""
        model, base = self.mj_model, self.base + 1
        friction, mass, com, strength, _ = (x.numpy().astype(np.float64) for x in vars(variation).values())

        def rows(name: str) -> np.ndarray:
            return np.repeat(getattr(model, name)[None], len(mass), axis=0)

        fields = {name: rows(name) for name in ("body_mass", "body_inertia", "body_ipos", "geom_friction")}
        fields["body_mass"][:, base] *= mass
        fields["body_inertia"][:, base] *= mass[:, None]
        fields["body_ipos"][:, base, 0] += com
        drawn = np.maximum(friction, LEAST_FRICTION)[:, None]
        fields["geom_friction"][..., 0] = np.where(np.isnan(drawn), fields["geom_friction"][..., 0], drawn)
        for name in ("actuator_forcerange", "jnt_actfrcrange"):
            fields[name] = rows(name) * strength[:, None, None]
        return fields

    def default_root_state(self) -> np.ndarray:
        """Return the first body at rest in the default pose, ``(13,)`` as in ``Simulator.root_states``."""
        data = mujoco.MjData(self.mj_model)
        mujoco.mj_kinematics(self.mj_model, data)
        w, x, y, z = data.xquat[1]
        return np.array([*data.xpos[1], x, y, z, w, *np.zeros(6)], dtype=np.float32)

    def default_object_states(self) -> np.ndarray:
        """Return the objects at rest where the file has them, ``(num_objects, 13)`` as ``Simulator.object_states``."""
        first = self.first_qpos + len(self.dof_names)
        poses = self.mj_model.qpos0[first:].reshape(-1, 7)
        states = np.zeros((len(self.object_names), 13), dtype=np.float32)
        states[:, :7] = poses[:, [0, 1, 2, 4, 5, 6, 3]]
        return states


def outermost_geom(model: mujoco.MjModel, body: int) -> int:
    """Return the geom of a body that can touch something and is farthest from the body's origin, or any."""
    geoms = np.flatnonzero(model.geom_bodyid == body)
    if not len(geoms):
        raise ValueError(f"{model.body(body).name} has no geom")
    touching = geoms[(model.geom_contype[geoms] | model.geom_conaffinity[geoms]) != 0]
    geoms = touching if len(touching) else geoms
    return int(geoms[np.linalg.norm(model.geom_pos[geoms], axis=1).argmax()])


def load_robot(
    xml: str | Path,
    dt: float,
    substeps: int,
    stiffness: Gains = None,
    damping: Gains = None,
    options: Mapping[str, Any] | None = None,
    ground: Ground | None = None,
) -> RobotModel:
    """Compile the MJCF file ``xml`` with time step ``dt / substeps``, s, and sensors of contact forces.

    ``stiffness`` and ``damping`` replace the gains of all position drives, by one number or one for each actuator; None
    keeps the file's (a ``<motor>`` has none: its position drive applies no force). ``options`` replaces ``integrator``,
    ``iterations`` and ``ls_iterations`` of the file's ``<option>``. Joints without an actuator are passive. The file's
    ``<contact body1=...>`` sensors become force-torque sensors; its other sensors are left out. ``ground`` replaces the
    file's plane.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: MuJoCo rejects the file, it has elements that Simulator does not support, or an option is invalid.
    """
    path = Path(xml)
    if not path.is_file():
        raise FileNotFoundError(f"no robot model at {path}")
    if not dt > 0 or substeps < 1:
        raise ValueError(f"a simulator needs dt > 0 and substeps >= 1, got dt={dt}, substeps={substeps}")
    try:
        spec = mujoco.MjSpec.from_file(str(path))
        spec.option.timestep = dt / substeps
        set_options(spec, options or {})
        if spec.option.integrator == mujoco.mjtIntegrator.mjINT_RK4:
            raise ValueError(f"the integrator RK4 is not supported; choose one of {', '.join(INTEGRATORS)}")
        if ground is not None:
            put_ground(spec, ground)
        # no automatic reset, which would look like motion; the backends detect unstable states themselves
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        sensor_names = [s.objname for s in spec.sensors if s.type == _CONTACT and s.objtype == mujoco.mjtObj.mjOBJ_BODY]
        for sensor in list(spec.sensors):
            spec.delete(sensor)
        for body in spec.bodies[1:]:
            if not body.name:
                raise ValueError("a body has no name; name every body")
            add_contact_sensor(spec, body.name, ("FORCE",))
        for name in sensor_names:
            add_contact_sensor(spec, name, ("TORQUE", "POS"))
        return _describe(spec.compile(), sensor_names, substeps, stiffness, damping)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def set_options(spec: mujoco.MjSpec, options: Mapping[str, Any]) -> None:
    """Replace the integrator and the limits of the solver. Raises ValueError for an unknown name or a bad value."""
    for name, value in options.items():
        if name == "integrator":
            if value not in INTEGRATORS:
                hint = near_matches(str(value), INTEGRATORS)
                raise ValueError(f"unknown integrator '{value}'{hint}; there are {', '.join(INTEGRATORS)}")
            spec.option.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{value.upper()}")
        elif name in ("iterations", "ls_iterations"):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
            setattr(spec.option, name, value)
        else:
            raise ValueError(f"unknown option '{name}'; there are integrator, iterations and ls_iterations")


def solver_limits(xml: str | Path) -> dict[str, int]:
    """Return ``iterations`` and ``ls_iterations`` of an MJCF file's ``<option>``."""
    option = mujoco.MjSpec.from_file(str(xml)).option
    return {"iterations": option.iterations, "ls_iterations": option.ls_iterations}


def _greatest(limited: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return the greatest absolute value within each range; infinity without a limit."""
    return np.where(limited.astype(bool), np.abs(ranges).max(axis=1, initial=0.0), np.inf)


def _describe(
    model: mujoco.MjModel, sensor_names: list[str], substeps: int, stiffness: Gains, damping: Gains
) -> RobotModel:
    """Check that the model is one robot and free objects, then look up addresses, gains and capacities."""
    if model.nbody < 2:
        raise ValueError("the model has no body; give the robot at least one")
    # the order of joints: a free joint of the first body, hinges and slides, then free joints of objects
    floating = model.njnt > 0 and model.jnt_type[0] == _FREE and model.jnt_bodyid[0] == 1
    first = int(floating)
    robot = [j for j in range(first, model.njnt) if model.jnt_type[j] != _FREE]
    end = first + len(robot)
    for j in robot:
        if model.jnt_type[j] not in (_HINGE, _SLIDE) or j >= end:
            name = model.joint(j).name or f"number {j}"
            raise ValueError(
                f"joint {name}: the robot has hinges and slides, beside a free joint of its first body; objects, with "
                "one free joint each, come after it"
            )
    dof_names = [model.joint(j).name for j in robot]
    if not all(dof_names):
        raise ValueError("a joint has no name; name every joint")

    actuated = np.array([_actuated_joint(model, a) - first for a in range(model.nu)], dtype=np.int64)
    if np.any(np.diff(actuated) <= 0):
        raise ValueError("list the actuators in the order of their joints, at most one for each joint")
    kp, kd = _set_gains(model, stiffness, damping)
    # limits of positions and efforts
    limited = model.jnt_limited[first:end].astype(bool)
    ranges = model.jnt_range[first:end].T
    lower, upper = (np.where(limited, ends, none) for ends, none in zip(ranges, (-np.inf, np.inf)))
    effort = np.zeros(len(dof_names))
    of_motors = _greatest(model.actuator_forcelimited, model.actuator_forcerange)
    of_joints = _greatest(model.jnt_actfrclimited, model.jnt_actfrcrange)[first + actuated]
    effort[actuated] = np.minimum(of_motors, of_joints)

    room = buffer_sizes(model)
    return RobotModel(
        mj_model=model,
        substeps=substeps,
        floating=bool(floating),
        dof_names=dof_names,
        body_names=[model.body(b).name for b in range(1, model.nbody)],
        sensor_bodies=np.array([model.body(name).id - 1 for name in sensor_names], dtype=np.int64),
        object_names=[model.body(model.jnt_bodyid[j]).name for j in range(end, model.njnt)],
        sites=find_sites(model, 6 * first, len(dof_names)),
        dof_limits_lower=torch.tensor(lower, dtype=torch.float32),
        dof_limits_upper=torch.tensor(upper, dtype=torch.float32),
        effort_limits=torch.tensor(effort, dtype=torch.float32),
        actuated=actuated,
        stiffness=kp,
        damping=kd,
        max_pairs=room.pairs,
        max_convex=room.convex,
        max_contacts=room.contacts,
        max_constraints=room.constraints,
    )


def _set_gains(model: mujoco.MjModel, stiffness: Gains, damping: Gains) -> tuple[np.ndarray, np.ndarray]:
    """Turn all actuators into drives, motors with zero stiffness and damping; return their gains."""
    has_drive = model.actuator_biastype == _AFFINE_BIAS
    kp = np.where(has_drive, -model.actuator_biasprm[:, 1], 0.0)
    kd = np.where(has_drive, -model.actuator_biasprm[:, 2], 0.0)
    kp = kp if stiffness is None else np.full(model.nu, stiffness, dtype=float)
    kd = kd if damping is None else np.full(model.nu, damping, dtype=float)
    model.actuator_biastype[:] = _AFFINE_BIAS  # a motor is then a drive whose bias is zero
    model.actuator_gainprm[:, 0] = kp
    model.actuator_biasprm[:, :3] = np.stack([np.zeros_like(kp), -kp, -kd], axis=1)
    return kp, kd


def _actuated_joint(model: mujoco.MjModel, actuator: int) -> int:
    """Return the joint of an actuator, which must be a plain position drive or motor."""
    gain, bias = model.actuator_gainprm[actuator], model.actuator_biasprm[actuator]
    # force = control, or gain * (control - position) - damping * velocity
    motor = model.actuator_biastype[actuator] == _NO_BIAS and gain[0] == 1
    position = model.actuator_biastype[actuator] == _AFFINE_BIAS and bias[0] == 0 and gain[0] == -bias[1]
    joint = int(model.actuator_trnid[actuator, 0])
    plain = (
        (motor or position)
        and model.actuator_trntype[actuator] == int(mujoco.mjtTrn.mjTRN_JOINT)
        and model.actuator_dyntype[actuator] == int(mujoco.mjtDyn.mjDYN_NONE)
        and model.actuator_gaintype[actuator] == int(mujoco.mjtGain.mjGAIN_FIXED)
        and model.actuator_gear[actuator, 0] == 1
        and not model.actuator_ctrllimited[actuator]
        and model.jnt_type[joint] != _FREE
    )
    if not plain:
        name = model.actuator(actuator).name or f"number {actuator}"
        raise ValueError(f"actuator {name}: use <position> or <motor> on a joint, with gear 1 and without ctrlrange")
    return joint


def find_sites(model: mujoco.MjModel, first_qvel: int, num_dofs: int) -> SiteModel:
    """Look up the sites and, if the file names a Jacobian site, the data of the Jacobian."""
    names = [model.site(k).name for k in range(model.nsite)]
    if not all(names):
        raise ValueError("a site has no name; name every site")
    wanted, jacobian = _text(model, "jacobian"), None
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"the text 'jacobian' names the site '{wanted}'; there are {', '.join(names) or 'none'}")
        jacobian = names.index(wanted)
    moves, inertia = np.zeros(num_dofs, dtype=bool), np.full((num_dofs, num_dofs), -1)
    if jacobian is not None:
        columns = first_qvel + np.arange(num_dofs)
        moves = np.isin(columns, dofs_above(model, int(model.site_bodyid[jacobian])))
        inertia = mass_addresses(model, columns)
    return SiteModel(
        names=names,
        bodies=model.site_bodyid.astype(np.int64),
        roots=model.body_rootid[model.site_bodyid].astype(np.int64),
        quats=model.site_quat.copy(),
        jacobian=jacobian,
        moves=moves,
        inertia=inertia,
    )


def _text(model: mujoco.MjModel, name: str) -> str | None:
    """Return a custom text of the file, or None."""
    text = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_TEXT, name)
    if text < 0:
        return None
    first = int(model.text_adr[text])
    return model.text_data[first : first + int(model.text_size[text])].split(b"\0")[0].decode()


LEAST_FRICTION = 1e-3  # MuJoCo Warp's single precision fails with less
_PLANE = mujoco.mjtGeom.mjGEOM_PLANE


def put_ground(spec: mujoco.MjSpec, ground: Ground) -> None:
    """Replace the planes of the world's body by ``ground``; contacts take its friction, not the robot's.

    The masks and the contact parameters are those of the file's first plane, MuJoCo's defaults without one.
    """
    planes = [geom for geom in spec.worldbody.geoms if geom.type == _PLANE]
    names = ("contype", "conaffinity", "condim", "solref", "solimp", "rgba", "group")
    values = [getattr(planes[0], name) for name in names] if planes else []
    like = {name: np.copy(value) if np.ndim(value) else int(value) for name, value in zip(names, values)}
    rolling = np.copy(planes[0].friction)[1:] if planes else (0.005, 0.0001)
    for plane in planes:
        spec.delete(plane)
    # the geom of higher priority decides on friction
    priority = 1 + max((int(geom.priority) for geom in spec.geoms), default=0)
    for number, field in enumerate(ground.height_fields):
        corner = np.array([*field.corner, 0.0])
        geom = add_height_field(spec, f"height field {number}", field.heights, (field.spacing, field.spacing), corner)
        _set_surface(geom, like, priority, field.friction, rolling)
    for number, box in enumerate(ground.boxes):
        geom = spec.worldbody.add_geom(
            name=f"box {number}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=list(box.center),
            size=[0.5 * length for length in box.size],
            quat=[np.cos(0.5 * box.yaw), 0.0, 0.0, np.sin(0.5 * box.yaw)],
        )
        _set_surface(geom, like, priority, box.friction, rolling)


def _set_surface(geom: Any, like: dict[str, Any], priority: int, friction: float, rolling: Any) -> None:
    for name, value in like.items():
        setattr(geom, name, value)
    geom.priority = priority
    geom.friction = [max(friction, LEAST_FRICTION), *rolling]
