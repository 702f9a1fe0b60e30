"""An environment's layout: its recorded actors, the model compiled of them, and the addresses of each actor's parts."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import mujoco
import numpy as np

from mujoco_batches.assets import collisions as contacts
from mujoco_batches.assets.asset import Asset
from mujoco_batches.assets.collisions import Pairs, ShapeClass, masks
from mujoco_batches.assets.terrain import Terrain
from mujoco_batches.physics.models import add_contact_sensor, add_height_field, dofs_above
from mujoco_batches.scene.params import AssetOptions, AttractorProperties, ForceSensorPlace, PlaneParams, SimParams
from mujoco_batches.scene.properties import MAX_FLOAT, RigidBodyProperties, RigidShapeProperties, TendonProperties
from mujoco_batches.scene.transforms import Transform, Vec3, pose_array, pose_object


@dataclass
class Actor:
    """A recorded actor of one environment.

    ``bodies`` is None until a task sets properties of bodies, ``dof_states`` until it sets states. ``shapes`` and
    ``tendons`` are shared with the asset until a task sets others; ``own_shapes`` is whether it has set shapes.
    ``commands`` are those that were set before the scene is compiled, by the engine's names.
    """

    asset: Asset
    name: str
    pose: Transform
    group: int
    filter: int
    dof_properties: np.ndarray
    shapes: list[RigidShapeProperties]
    tendons: list[TendonProperties]
    bodies: list[RigidBodyProperties] | None = None
    own_shapes: bool = False
    scale: float = 1.0
    dof_states: np.ndarray | None = None
    commands: dict[str, np.ndarray] = field(default_factory=dict)

    def filters(self) -> list[int]:
        """Return the filter of each shape: the actor's, unless that is -1 or the task has set shapes."""
        by_shape = self.own_shapes or self.filter < 0
        return [int(shape.filter) if by_shape else self.filter for shape in self.shapes]


@dataclass
class ActorPlace:
    """An actor's rows of the environment's bodies and DOFs, and its root's addresses in MuJoCo's arrays."""

    fixed: bool
    bodies: slice
    dofs: slice
    root: int  # MuJoCo's body
    qpos: int = -1
    qvel: int = -1
    mocap: int = -1


class ContactList(NamedTuple):
    """Contacts to report one by one: of a body of the environment with anything, or with ``other``.

    ``other`` is the index of a body, or -1 - i for ground i: the planes, then the terrains. ``points`` adds the points
    and tangents of the contacts.
    """

    body: int
    slots: int
    other: int | None = None
    points: bool = False

    @property
    def size(self) -> int:
        """Numbers of the list."""
        return self.slots * (12 if self.points else 6)


@dataclass
class Layout:
    """A compiled environment.

    Attributes:
        model: the compiled model.
        substeps: physics steps per ``simulate``.
        places: one per actor.
        bodies: MuJoCo's ids of the environment's rigid bodies, in the order of the tensors.
        dof_qpos, dof_qvel, dof_joint: of each DOF, the addresses in qpos and qvel, and the joint.
        sensors: the force sensors; their bodies are indices in ``bodies``.
        max_velocity: of each actor's root, the largest linear and angular speed, m/s and rad/s.
        root_damping: of each actor's root, linear and angular rates, 1/s; 0 unless it is free and the only body.
        link_damping: the same rates of the bodies of the other actors, ``(num_bodies, 2)``; 0 where they are weak.
        pairs: contacts between actors and with the ground.
        contact_lists: the lists of contacts, whose values are the last of the sensors' data.
        joint_wrenches: whether MuJoCo computes the forces between bodies, for ``Engine.joint_wrenches``.
    """

    model: mujoco.MjModel
    substeps: int
    places: list[ActorPlace]
    bodies: np.ndarray
    dof_qpos: np.ndarray
    dof_qvel: np.ndarray
    dof_joint: np.ndarray
    sensors: list[ForceSensorPlace]
    max_velocity: list[tuple[float, float]]
    root_damping: list[tuple[float, float]]
    link_damping: np.ndarray
    pairs: Pairs
    contact_lists: Sequence[ContactList] = ()
    joint_wrenches: bool = False
    _structures: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict)

    @property
    def contact_sensors(self) -> list[int]:
        """Numbers of the force sensors whose reading depends on the contacts by themselves."""
        return [number for number, sensor in enumerate(self.sensors) if sensor.weights[1]]

    @property
    def dof_actors(self) -> np.ndarray:
        """Actor of each DOF, ``(num_dofs,)``."""
        counts = [actor.dofs.stop - actor.dofs.start for actor in self.places]
        return np.repeat(np.arange(len(self.places)), counts)

    @property
    def ground_geoms(self) -> list[int]:
        """MuJoCo's ids of the grounds: the planes, then the terrains."""
        names = [self.model.geom(k).name for k in range(self.model.ngeom)]
        return [k for kind in ("plane", "terrain") for k, name in enumerate(names) if name.startswith(f"{kind} ")]

    def geoms(self, actor: int) -> np.ndarray:
        """Return MuJoCo's ids of an actor's shapes."""
        return np.flatnonzero(np.isin(self.model.geom_bodyid, self.bodies[self.places[actor].bodies]))

    def structure(self, actor: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return an actor's links, addresses of its DOFs in qvel, and ``(links, dofs)`` bool, which DOF moves which."""
        if actor not in self._structures:
            parts = self.places[actor]
            links, columns = self.bodies[parts.bodies][int(parts.fixed) :], self.dof_qvel[parts.dofs]
            moved = np.array([np.isin(columns, dofs_above(self.model, int(body))) for body in links])
            self._structures[actor] = links, columns, moved.reshape(len(links), len(columns))
        return self._structures[actor]


_BODY, _GEOM = mujoco.mjtObj.mjOBJ_BODY, mujoco.mjtObj.mjOBJ_GEOM
_SENSORS = mujoco.mjtSensor
_STRONGEST = 2  # MJCF's reduce="maxforce"


def build_layout(
    actors: list[Actor],
    attractors: list[AttractorProperties],
    params: SimParams,
    planes: list[PlaneParams],
    terrains: Sequence[Terrain] = (),
    force_sensors: Sequence[ForceSensorPlace] = (),
    contact_lists: Sequence[ContactList] = (),
    joint_wrenches: bool = False,
) -> Layout:
    """Compile one environment.

    The last arguments are attributes of the layout.

    Raises:
        ValueError: MuJoCo rejects the model.
    """
    spec = _world(params)
    classes = [_shape_classes(k, actor) for k, actor in enumerate(actors)]
    assigned = masks(classes)
    surfaces, friction = [], []
    for k, actor in enumerate(actors):
        surfaces += _add_actor(spec, k, actor, classes[k], assigned[k])
        friction += [shape.friction for shape in actor.shapes]
    # the ground, then pairs of surfaces that may touch
    first_ground = len(surfaces)
    for number, plane in enumerate(planes):
        surfaces.append(_add_plane(spec, number, plane))
        friction.append(plane.dynamic_friction)
    for number, terrain in enumerate(terrains):
        surfaces.append(_add_terrain(spec, number, terrain))
        friction.append(terrain.friction)
    touching = contacts.touching(classes, len(surfaces) - first_ground)
    speed = params.physx.max_depenetration_velocity
    pair_names = contacts.add_pairs(spec, surfaces, touching, speed)
    # sensors and attractors, by the names of bodies
    names = [f"{k}/{name}" for k, actor in enumerate(actors) for name in actor.asset.model_names]
    sensors = [*_asset_sensors(actors), *force_sensors]
    _add_sensors(spec, names, sensors)
    if joint_wrenches:  # MuJoCo computes them for the sake of a sensor of accelerations
        spec.add_sensor(type=_SENSORS.mjSENS_FRAMELINACC, objtype=_BODY, objname=names[0])
    for wanted in contact_lists:
        _add_contact_list(spec, names, surfaces[first_ground:], wanted)
    for attractor in attractors:
        name = names[attractor.rigid_handle]
        joint = spec.add_equality(type=mujoco.mjtEq.mjEQ_CONNECT, objtype=_BODY, name1=name, name2="world")
        joint.data = np.r_[list(attractor.offset.p), np.zeros(len(joint.data) - 3)]
    # what specifications cannot say
    model = spec.compile()
    _set_ranges(model, actors)
    for number, attractor in enumerate(attractors):
        model.eq_data[number, 3:6] = list(attractor.target.p)
    pairs = Pairs(
        surfaces=np.array(touching, dtype=np.int64).reshape(-1, 2),
        ids=np.array([model.pair(name).id for name in pair_names], dtype=np.int64),
        grounds=friction[first_ground:],
        first_shape=[sum(len(a.shapes) for a in actors[:k]) for k in range(len(actors))],
    )
    model.pair_friction[pairs.ids] = pairs.friction(np.arange(len(touching)), friction[:first_ground])
    layout = _describe(model, actors, sensors, params, pairs)
    layout.contact_lists, layout.joint_wrenches = tuple(contact_lists), joint_wrenches
    return layout


def _world(params: SimParams) -> mujoco.MjSpec:
    spec = mujoco.MjSpec()
    spec.option.timestep = params.dt / params.substeps
    spec.option.gravity = list(params.gravity)
    # PhysX integrates drives implicitly; of MuJoCo's integrators only this one does
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_DISCRETE
    # the engine detects and resets unstable environments itself; a reset inside a step would look like motion
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    return spec


def _asset_sensors(actors: list[Actor]) -> list[ForceSensorPlace]:
    """Return the force sensors of all assets; bodies are numbered in the environment."""
    sensors, first = [], 0
    for actor in actors:
        sensors += [sensor._replace(body=first + sensor.body) for sensor in actor.asset.sensors]
        first += len(actor.asset.body_names)
    return sensors


def _add_sensors(spec: mujoco.MjSpec, bodies: list[str], sensors: list[ForceSensorPlace]) -> None:
    """Add MuJoCo's sensors: contact forces of all bodies, then for force sensors accelerations and contact wrenches."""

    for name in bodies:
        add_contact_sensor(spec, name, ("FORCE",))
    for sensor in sensors:
        for kind in (_SENSORS.mjSENS_FRAMELINACC, _SENSORS.mjSENS_FRAMEANGACC):
            spec.add_sensor(type=kind, objtype=_BODY, objname=bodies[sensor.body])
    for sensor in sensors:
        if sensor.weights[1]:
            add_contact_sensor(spec, bodies[sensor.body], ("FORCE", "TORQUE", "POS"))


def _add_contact_list(spec: mujoco.MjSpec, bodies: list[str], grounds: list[str], wanted: ContactList) -> None:
    """Add a sensor of the strongest contacts of a body, with what ``Engine.contacts`` returns."""
    other = {}
    if wanted.other is not None:
        name, kind = (grounds[-1 - wanted.other], _GEOM) if wanted.other < 0 else (bodies[wanted.other], _BODY)
        other = {"refname": name, "reftype": kind}
    names = ("FORCE", "NORMAL", "POS", "TANGENT") if wanted.points else ("FORCE", "NORMAL")
    fields = sum(1 << int(getattr(mujoco.mjtConDataField, f"mjCONDATA_{name}")) for name in names)
    numbers = [fields, _STRONGEST, wanted.slots]
    spec.add_sensor(type=_SENSORS.mjSENS_CONTACT, objtype=_BODY, objname=bodies[wanted.body], intprm=numbers, **other)


def _add_plane(spec: mujoco.MjSpec, number: int, plane: PlaneParams) -> str:
    """Add a plane, which collides in explicit pairs only; return its name."""
    name = f"plane {number}"
    normal = plane.normal.normalize()
    up = Vec3(0, 0, 1)
    axis, cosine = up.cross(normal), up.dot(normal)
    geom = spec.worldbody.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=0, conaffinity=0
    )
    if axis.length() > 1e-9:
        quat = np.array([1.0 + cosine, axis.x, axis.y, axis.z])
        geom.quat = quat / np.linalg.norm(quat)
    elif cosine < 0:
        geom.quat = [0, 1, 0, 0]
    geom.pos = list(normal * -plane.distance)
    return name


def _add_terrain(spec: mujoco.MjSpec, number: int, terrain: Terrain) -> str:
    """Add an hfield, which collides in explicit pairs only; return its name."""
    name = f"terrain {number}"
    geom = add_height_field(spec, name, terrain.heights, terrain.spacing, np.zeros(3))
    pose = pose_array(terrain.pose * pose_object(np.r_[geom.pos, 1.0, 0.0, 0.0, 0.0]))
    geom.contype, geom.conaffinity, geom.pos, geom.quat = 0, 0, pose[:3], pose[3:]
    return name


def _shape_classes(number: int, actor: Actor) -> list[ShapeClass]:
    """Return the class of each shape of an actor."""
    model, classes = actor.asset.model, []
    for geom, bits in enumerate(actor.filters()):
        body = int(model.geom_bodyid[geom])
        immovable = actor.asset.fixed and int(model.body_weldid[body]) in (0, int(model.body_weldid[1]))
        if actor.filter >= 0 or bits:
            classes.append(ShapeClass(actor.group, bits, immovable))
        else:
            contype, conaffinity = int(model.geom_contype[geom]), int(model.geom_conaffinity[geom])
            classes.append(ShapeClass(actor.group, 0, immovable, number, contype, conaffinity))
    return classes


def _add_actor(
    spec: mujoco.MjSpec, number: int, actor: Actor, classes: list[ShapeClass], assigned: dict[ShapeClass, tuple]
) -> list[str]:
    """Add an actor with its drives; return the names of its shapes."""
    child = actor.asset.rooted()
    for actuator in list(child.actuators):
        child.delete(actuator)
    pose = pose_array(actor.pose)
    base = child.worldbody.first_body()
    base.pos, base.quat = pose[:3], pose[3:]
    for body in child.bodies[1:]:
        body.gravcomp = float(actor.asset.options.disable_gravity)
        body.simple = False  # MuJoCo refuses to change masses, centres and inertias of simple bodies
    geoms = [geom for body in child.bodies[1:] for geom in body.geoms]
    for index, (geom, shape, kind) in enumerate(zip(geoms, actor.shapes, classes)):
        geom.name = geom.name or f"shape {index}"
        geom.contype, geom.conaffinity = assigned[kind]
        geom.friction = [shape.friction, contacts.SPIN, contacts.ROLL]
        # contact parameters of the file are specific to MuJoCo, and Isaac Gym does not read them
        geom.condim, geom.margin, geom.gap, geom.priority = 3, 0.0, 0.0, 0
        geom.solref, geom.solimp, geom.solmix = [0.02, 1.0], [0.9, 0.95, 0.001, 0.5, 2.0], 1.0
    for joint in child.joints:
        joint.frictionloss, joint.stiffness, joint.damping = 0.0, [0.0] * 3, [0.0] * 3
        joint.actfrclimited = mujoco.mjtLimited.mjLIMITED_FALSE
    for name, row in zip(actor.asset.dof_names, actor.dof_properties):
        joint = child.joint(name)
        if row["hasLimits"] and joint.limited != mujoco.mjtLimited.mjLIMITED_TRUE:
            joint.limited = mujoco.mjtLimited.mjLIMITED_TRUE
            joint.range = joint.range if joint.range.any() else [-1, 1]  # replaced by the properties
    for tendon, properties in zip(child.tendons, actor.tendons):
        tendon.damping = [float(properties.damping), 0.0, 0.0]
    names = [f"{number}/{geom.name}" for geom in geoms]
    spec.attach(child, frame=spec.worldbody.add_frame(), prefix=f"{number}/")
    for name in actor.asset.dof_names:
        spec.add_actuator(
            name=f"{number}/{name}",
            target=f"{number}/{name}",
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            gaintype=mujoco.mjtGain.mjGAIN_FIXED,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE,
            gainprm=[1.0] + [0.0] * 9,
            forcelimited=mujoco.mjtLimited.mjLIMITED_TRUE,
            forcerange=[-1e30, 1e30],
        )
    return names


def _set_ranges(model: mujoco.MjModel, actors: list[Actor]) -> None:
    """Set the limits within which joints start: those of the actors, which can differ from their assets'."""
    for k, actor in enumerate(actors):
        for name, row in zip(actor.asset.dof_names, actor.dof_properties):
            joint = model.joint(f"{k}/{name}").id
            if model.jnt_limited[joint]:
                model.jnt_range[joint] = (row["lower"], row["upper"]) if row["hasLimits"] else (-MAX_FLOAT, MAX_FLOAT)


def _describe(
    model: mujoco.MjModel, actors: list[Actor], sensors: list[ForceSensorPlace], params: SimParams, pairs: Pairs
) -> Layout:
    # where the bodies and joints of each actor are in the model; a fixed root is a mocap body
    places, bodies, joints = [], [], []
    for k, actor in enumerate(actors):
        asset = actor.asset
        first, dof = len(bodies), len(joints)
        bodies += [model.body(f"{k}/{name}").id for name in asset.model_names]
        joints += [model.joint(f"{k}/{name}").id for name in asset.dof_names]
        root = bodies[first]
        parts = ActorPlace(asset.fixed, slice(first, len(bodies)), slice(dof, len(joints)), root)
        if asset.fixed:
            parts.mocap = int(model.body_mocapid[root])
        else:
            parts.qpos = int(model.jnt_qposadr[model.body_jntadr[root]])
            parts.qvel = int(model.jnt_dofadr[model.body_jntadr[root]])
        places.append(parts)
    options = [actor.asset.options for actor in actors]
    return Layout(
        model=model,
        substeps=int(params.substeps),
        places=places,
        bodies=np.array(bodies, dtype=np.int64),
        dof_qpos=model.jnt_qposadr[joints].astype(np.int64),
        dof_qvel=model.jnt_dofadr[joints].astype(np.int64),
        dof_joint=np.array(joints, dtype=np.int64),
        sensors=sensors,
        max_velocity=[(o.max_linear_velocity, o.max_angular_velocity) for o in options],
        root_damping=[_root_damping(actor.asset) for actor in actors],
        link_damping=np.array([rates for actor in actors for rates in _link_damping(actor.asset)]).reshape(-1, 2),
        pairs=pairs,
    )


def _damping(asset: Asset) -> tuple[float, float]:
    return float(asset.options.linear_damping), float(asset.options.angular_damping)


def _root_damping(asset: Asset) -> tuple[float, float]:
    return _damping(asset) if len(asset.body_names) == 1 and not asset.fixed else (0.0, 0.0)


def _link_damping(asset: Asset) -> list[tuple[float, float]]:
    """Return the rates of the bodies of an actor of several; zeros up to Isaac Gym's defaults.

    These, 0 and 0.5 1/s, are the rates of most tasks. They change little, and the CPU engine would take twice as long.
    """
    linear, angular = _damping(asset)
    weak = linear <= AssetOptions.linear_damping and angular <= AssetOptions.angular_damping
    count = len(asset.body_names)
    return [(0.0, 0.0) if weak or count == 1 else (linear, angular)] * count
