"""Assets: robots and objects from files or primitives, with names and properties in Isaac Gym's order."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

import copy
from pathlib import Path

import mujoco
import numpy as np

from mujoco_batches.assets import mjcf, urdf_spec, usd
from mujoco_batches.assets.urdf import AssetError, Joint, Shape
from mujoco_batches.scene.params import DOF_MODE_POS, AssetOptions, ForceSensorPlace, tell_ignored
from mujoco_batches.scene.properties import (
    DEFAULT_VELOCITY,
    DOF_PROPERTIES,
    MAX_FLOAT,
    ActuatorProperties,
    IndexRange,
    RigidBodyProperties,
    RigidShapeProperties,
    TendonProperties,
    body_properties,
)
from mujoco_batches.scene.transforms import Transform, pose_object

_HINGE, _SLIDE, _FREE = (int(t) for t in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE, 0))
_MESH = int(mujoco.mjtGeom.mjGEOM_MESH)
_AFFINE_BIAS = int(mujoco.mjtBias.mjBIAS_AFFINE)


class Asset:
    """A robot or object, as returned by ``load_asset``.

    Attributes:
        spec: the specification without a root joint; its first body is the root.
        model: the compiled asset, with a free or a fixed root.
        body_names, dof_names: depth first, in the order of the tensors.
        model_names: the bodies' names in the model, which differ for a link "world".
        joint_names: for each body but the root, the joint that connects it to its parent, fixed joints included.
        dof_properties: structured array, a row for each DOF.
        shapes: properties of the collision shapes, in the order of their bodies.
        shape_ranges: for each body, which of the shapes are its own.
        sensors: its force sensors.
    """

    def __init__(self, name: str, spec: mujoco.MjSpec, options: AssetOptions, joints: dict[str, Joint]) -> None:
        self.name, self.spec = name, spec
        self.options = copy.deepcopy(options)
        self.fixed = bool(options.fix_base_link)
        self.sensors: list[ForceSensorPlace] = []
        self._bodies: list[RigidBodyProperties] | None = None
        tell_ignored("AssetOptions", options.ignored())
        try:
            self.model = self.rooted().compile()
        except ValueError as error:
            raise AssetError(f"{name}: {error}") from error
        # names, of bodies as the file has them
        model = self.model
        self.model_names = [model.body(b).name for b in range(1, model.nbody)]
        self.body_names = ["world" if name == urdf_spec.WORLD else name for name in self.model_names]
        self._joints = [j for j in range(model.njnt) if model.jnt_type[j] != _FREE]
        for j in self._joints:
            if model.jnt_type[j] not in (_HINGE, _SLIDE):
                raise AssetError(f"{name}: joint {model.joint(j).name}: only hinges and slides are supported")
        self.dof_names = [model.joint(j).name for j in self._joints]
        self.joint_names = self._name_joints(joints)
        self.actuator_joints, self.actuators = self._read_actuators()
        self.dof_properties = self._read_dofs(joints)
        # properties that a script can read before there is an actor
        self.shapes = [RigidShapeProperties(friction=float(f)) for f in model.geom_friction[:, 0]]
        self.shape_ranges = [IndexRange(*map(int, r)) for r in list(zip(model.body_geomadr, model.body_geomnum))[1:]]
        self.tendon_names = [model.tendon(t).name for t in range(model.ntendon)]
        self.tendons = [
            TendonProperties(damping=float(d), lower_limit=float(low), upper_limit=float(high))
            for d, (low, high) in zip(model.tendon_damping, model.tendon_range)
        ]

    def rooted(self) -> mujoco.MjSpec:
        """Return a copy of the specification with a root that is free, or fixed as a mocap body."""
        spec = self.spec.copy()
        base = spec.worldbody.first_body()
        base.pos, base.quat = [0, 0, 0], [1, 0, 0, 0]  # an actor's pose is that of its root
        if self.fixed:
            base.mocap = True
        else:
            base.add_freejoint(name="root free joint")
        return spec

    def body_properties(self) -> list[RigidBodyProperties]:
        """Return a copy of the bodies' masses, centres of mass and inertias."""
        if self._bodies is None:
            m = self.model
            parts = (m.body_mass, m.body_ipos, m.body_iquat, m.body_inertia)
            self._bodies = [body_properties(*(part[b] for part in parts)) for b in range(1, m.nbody)]
        return copy.deepcopy(self._bodies)

    def structure(self) -> tuple:
        """Return what must be equal for two assets of corresponding actors in different environments.

        Sizes, positions, masses and properties may differ; mesh files must be equal.
        """
        m, o = self.model, self.options
        meshes = [m.mesh(int(d)).name if t == _MESH else "" for t, d in zip(m.geom_type, m.geom_dataid)]
        kinds = (m.body_parentid, m.geom_type, m.geom_bodyid, m.geom_contype, m.geom_conaffinity, m.jnt_type)
        frames = [sensor.numbers() for sensor in self.sensors]
        return (
            *(tuple(values.tolist()) for values in kinds),
            *(tuple(names) for names in (self.body_names, self.dof_names, self.tendon_names, meshes, frames)),
            (self.fixed, o.disable_gravity, o.max_linear_velocity, o.max_angular_velocity),
            (o.linear_damping, o.angular_damping),
        )

    def rest_poses(self) -> list[Transform]:
        """Return the bodies' poses in the root's frame with all joints at zero."""
        data = mujoco.MjData(self.model)
        mujoco.mj_kinematics(self.model, data)
        return [pose_object(np.r_[data.xpos[b], data.xquat[b]]) for b in range(1, self.model.nbody)]

    def _name_joints(self, joints: dict[str, Joint]) -> list[str]:
        """Return the joints in the order of their bodies; an unnamed fixed joint has its body's name."""
        names = []
        for body in range(2, self.model.nbody):
            first, count = int(self.model.body_jntadr[body]), int(self.model.body_jntnum[body])
            moving = [self.model.joint(j).name for j in range(first, first + count)]
            names += moving or [self.fixed_joints.get(self.model.body(body).name, self.model.body(body).name)]
        return names

    @property
    def fixed_joints(self) -> dict[str, str]:
        """Names of the fixed joints that were not collapsed, by their child links."""
        prefix = "fixed joint "
        return {t.data: t.name[len(prefix) :] for t in self.spec.texts if t.name.startswith(prefix)}

    def _read_actuators(self) -> tuple[list[str], list[ActuatorProperties]]:
        model, joints, actuators = self.model, [], []
        for a in range(model.nu):
            joint = int(model.actuator_trnid[a, 0])
            on_joint = model.actuator_trntype[a] == int(mujoco.mjtTrn.mjTRN_JOINT)
            joints.append(model.joint(joint).name if on_joint else model.tendon(joint).name)
            limited = bool(model.actuator_forcelimited[a])
            actuators.append(
                ActuatorProperties(
                    control_limited=bool(model.actuator_ctrllimited[a]),
                    force_limited=limited,
                    lower_control_limit=float(model.actuator_ctrlrange[a, 0]),
                    upper_control_limit=float(model.actuator_ctrlrange[a, 1]),
                    lower_force_limit=float(model.actuator_forcerange[a, 0]) if limited else -MAX_FLOAT,
                    upper_force_limit=float(model.actuator_forcerange[a, 1]) if limited else MAX_FLOAT,
                    kp=float(-model.actuator_biasprm[a, 1]) if model.actuator_biastype[a] == _AFFINE_BIAS else 0.0,
                    motor_effort=float(model.actuator_gear[a, 0]),
                )
            )
        return joints, actuators

    @property
    def slides(self) -> list[bool]:
        """Whether each DOF is a translation."""
        return [bool(self.model.jnt_type[j] == _SLIDE) for j in self._joints]

    def _read_dofs(self, joints: dict[str, Joint]) -> np.ndarray:
        model = self.model
        rows = np.zeros(len(self._joints), DOF_PROPERTIES)
        drives = dict(zip(self.actuator_joints, self.actuators))
        for row, j, name in zip(rows, self._joints, self.dof_names):
            limited, dof = bool(model.jnt_limited[j]), int(model.jnt_dofadr[j])
            row["hasLimits"] = limited
            row["lower"], row["upper"] = model.jnt_range[j] if limited else (-MAX_FLOAT, MAX_FLOAT)
            row["driveMode"] = self.options.default_dof_drive_mode
            row["velocity"], row["effort"] = DEFAULT_VELOCITY, MAX_FLOAT
            row["stiffness"], row["damping"] = model.jnt_stiffness[j], model.dof_damping[dof]
            row["armature"] = model.dof_armature[dof] + self.options.armature
            if name in joints:
                joint = joints[name]
                row["velocity"], row["effort"] = joint.velocity, min(joint.effort, MAX_FLOAT)
                row["damping"], row["friction"] = joint.damping, joint.friction
                row["stiffness"], row["armature"] = joint.stiffness, row["armature"] + joint.armature
            drive = drives.get(name)
            if drive is not None and drive.kp > 0:  # MJCF's <position>
                row["driveMode"], row["stiffness"], row["effort"] = DOF_MODE_POS, drive.kp, drive.upper_force_limit
        return rows


def load(root: str, file: str, options: AssetOptions | None) -> Asset:
    """Load the URDF, MJCF or USD ``file`` under the folder ``root``.

    Raises:
        AssetError: it is missing, has another format, or does not compile.
    """
    options = AssetOptions() if options is None else options
    path = Path(root) / file
    if not path.is_file():
        raise AssetError(f"{path}: the asset does not exist")
    if path.suffix == ".urdf":
        spec, joints = urdf_spec.load(path, Path(root), options)
        return Asset(str(path), spec, options, joints)
    if path.suffix in usd.ENDINGS:
        spec, joints = usd.load(path, options)
        return Asset(str(path), spec, options, joints)
    if path.suffix in (".xml", ".mjcf"):
        return Asset(str(path), mjcf.load(path, Path(root), options), options, {})
    raise AssetError(f"{path}: an asset is a .urdf, an MJCF .xml or a .usd file; {path.suffix} is not supported")


def primitive(kind: str, size: list[float], options: AssetOptions | None) -> Asset:
    """Return a box (half sizes), sphere or capsule (radius, half length) as an asset of one body."""
    options = AssetOptions() if options is None else options
    spec = urdf_spec.new_spec()
    body = spec.worldbody.add_body(name=kind)
    urdf_spec.add_shape(spec, body, Shape(kind, size, np.eye(4)), options.density)
    return Asset(kind, spec, options, {})
