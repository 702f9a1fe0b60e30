"""Conversion of any robot's model to a file that ``load_robot`` accepts, and the first state of its episodes.

Actuators become drives that ``load_robot`` accepts: one motor or position drive per joint, with gear 1.
"""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from envcoder_bench.core.words import join_words
from envcoder_bench.sim.portable_model import check_copy, self_contained
from mujoco_batches.assets import urdf_spec
from mujoco_batches.scene.params import AssetOptions

NOTHING_TO_STAND_ON = (
    'the robot floats, and nothing in the model can carry it: add <geom type="plane" size="0 0 1"/> to the worldbody, '
    "or give the file of its scene"
)
_FREE, _BALL = mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_BALL
# attributes of ball joints that their hinges get; damping and the like then act about each hinge
_KEPT = ("type", "pos", "range", "limited", "damping", "stiffness", "armature", "frictionloss", "margin")


@dataclass(frozen=True)
class RobotFile:
    """A converted model.

    Attributes:
        xml, assets: its MJCF, and the contents of the files that it names, by their paths relative to it.
        timestep: time step of the original, s.
        qpos: MuJoCo's joint positions at the beginning of episodes: the keyframe ``home`` or the first one, else the
            model's default; joints within their limits, a floating robot above the ground.
        changes: differences from the original, one line each.
    """

    xml: str
    assets: dict[str, bytes]
    timestep: float
    qpos: np.ndarray
    changes: list[str]

    def write(self, path: Path) -> None:
        """Write the MJCF, and the assets beside it."""
        path.write_text(self.xml, encoding="utf-8")
        for name, content in self.assets.items():
            (path.parent / name).parent.mkdir(exist_ok=True)
            (path.parent / name).write_bytes(content)


def convert_file(path: Path, floating: bool, ground: bool) -> RobotFile:
    """Convert an MJCF or URDF file, see ``convert``. Raises ValueError also if it cannot be read."""
    if path.suffix != ".urdf":
        return convert(mujoco.MjSpec.from_file(str(path)), path, floating, ground, {})
    spec, joints = urdf_spec.load(path, path.parent, AssetOptions())
    for joint in spec.joints:
        joint.damping, joint.frictionloss = [joints[joint.name].damping, 0.0, 0.0], joints[joint.name].friction
    efforts = {joint.name: joint.effort for joint in joints.values()}
    return convert(spec, path, floating, ground, efforts)


def convert(spec: Any, path: Path, floating: bool, ground: bool, efforts: Mapping[str, float]) -> RobotFile:
    """Return a model in the form that ``load_robot`` accepts.

    Args:
        spec: of the file ``path``.
        floating: give the first body a free joint, if it has none.
        ground: add a plane, if the robot floats and nothing can carry it.
        efforts: see ``replace_actuators``.

    Raises:
        ValueError: it cannot be converted; the message says why and what to do.
    """
    # bodies, with a free root if it is wanted
    changes = _name_all(spec)
    bodies = spec.bodies[1:]
    if not bodies:
        raise ValueError("the model has no body; give the robot at least one")
    if floating and not any(joint.type == _FREE for joint in bodies[0].joints):
        bodies[0].add_freejoint(name=f"{bodies[0].name}_free")
    model = spec.compile()
    if model.nflex or model.nplugin:
        raise ValueError("flexible bodies and plugins are not supported; remove them")
    # drives, before joints change: gains may depend on the inertia of the compiled model
    changes += replace_actuators(spec, model, efforts)
    for joint in spec.joints:
        if joint.name in efforts and joint.armature == 0:
            joint.armature = 0.01
    # sensors and keyframes refer to parts that change
    for sensor in list(spec.sensors):
        if sensor.type != mujoco.mjtSensor.mjSENS_CONTACT or sensor.objtype != mujoco.mjtObj.mjOBJ_BODY:
            spec.delete(sensor)
    for key in list(spec.keys):
        spec.delete(key)
    changes += _replace_balls(spec)
    if spec.option.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        changes.append("the integrator RK4 is now implicitfast")
    if lacks_ground(model):
        if not ground:
            raise ValueError(f"{NOTHING_TO_STAND_ON}; --ground adds the plane")
        spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
        changes.append("a plane to stand on is new")
    # the file, compared with the model
    _rename_meshes(spec)
    qpos, model = _keyframe(model), spec.compile()
    xml, assets = self_contained(spec.to_xml(), spec, path)
    check_copy(model, xml, assets)
    return RobotFile(xml, assets, float(model.opt.timestep), _start(model, qpos), changes)


def base_height(xml: Path, stance: Sequence[float]) -> float:
    """Return the height of a floating base above the lowest point of what can touch, upright, with these joints, m."""
    model = mujoco.MjModel.from_xml_path(str(xml))
    data = mujoco.MjData(model)
    data.qpos[:7], data.qpos[7 : 7 + len(stance)] = (0, 0, 0, 1, 0, 0, 0), stance
    mujoco.mj_kinematics(model, data)
    touching = (model.geom_contype | model.geom_conaffinity) != 0
    geoms = np.flatnonzero(touching & (model.body_weldid[model.geom_bodyid] != 0))
    return float(-min(_lowest(model, data, int(geom)) for geom in geoms))


def _lowest(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    """Return the height of a geom's lowest point, m."""
    (a, b, c), (x, y, z) = model.geom_size[geom], data.geom_xmat[geom, 6:]  # z of the geom's axes
    kind, types = int(model.geom_type[geom]), mujoco.mjtGeom
    if kind == int(types.mjGEOM_MESH):
        mesh = int(model.geom_dataid[geom])
        first = int(model.mesh_vertadr[mesh])
        reach = -float((model.mesh_vert[first : first + int(model.mesh_vertnum[mesh])] @ (x, y, z)).min())
    elif kind == int(types.mjGEOM_BOX):
        reach = np.abs([x * a, y * b, z * c]).sum()
    elif kind == int(types.mjGEOM_CYLINDER):
        reach = abs(z) * b + a * np.hypot(x, y)
    elif kind == int(types.mjGEOM_ELLIPSOID):
        reach = np.linalg.norm([x * a, y * b, z * c])
    else:  # a sphere or a capsule
        reach = a + (abs(z) * b if kind == int(types.mjGEOM_CAPSULE) else 0.0)
    return float(data.geom_xpos[geom, 2] - reach)


def lacks_ground(model: mujoco.MjModel | Path) -> bool:
    """Return whether the robot of a model or a file floats, falls, and cannot touch anything that is fixed."""
    if isinstance(model, Path):
        try:
            model = mujoco.MjModel.from_xml_path(str(model))
        except ValueError:  # other checks report it
            return False
    floats = model.njnt > 0 and model.jnt_type[0] == int(_FREE) and model.jnt_bodyid[0] == 1
    if not floats or not model.opt.gravity.any() or model.npair:
        return False
    fixed = model.body_weldid[model.geom_bodyid] == 0
    mine, other = model.geom_contype, model.geom_conaffinity
    touches = (mine[fixed, None] & other[None, ~fixed]) | (other[fixed, None] & mine[None, ~fixed])
    return not touches.any()


def _name_all(spec: Any) -> list[str]:
    """Name bodies, joints and sites without a name; return the changes."""
    count: Counter[str] = Counter()
    for k, body in enumerate(spec.bodies[1:], 1):
        if not body.name:
            body.name = f"body_{k}"
            count["body"] += 1
    for kind in ("joint", "site"):
        elements = getattr(spec, f"{kind}s")
        names = {element.name for element in elements}
        for element in elements:
            if not element.name:
                base = f"{element.parent.name}_{kind}"
                element.name = next(n for n in (base, *(f"{base}_{k}" for k in range(2, 999))) if n not in names)
                names.add(element.name)
                count[kind] += 1
    return [f"{number} nameless of kind {kind} got names" for kind, number in count.items()]


def _replace_balls(spec: Any) -> list[str]:
    """Replace each ball joint by three hinges; return the changes."""
    changes = []
    for ball in [joint for joint in spec.joints if joint.type == _BALL]:
        if len(ball.parent.joints) > 1:
            raise ValueError(
                f"joint {ball.name}: a ball joint beside slides is not supported; a base needs a <freejoint/>"
            )
        name, ball.type, ball.range = ball.name, mujoco.mjtJoint.mjJNT_HINGE, [-ball.range[1], ball.range[1]]
        for letter, hinge in zip("xyz", (ball, ball.parent.add_joint(), ball.parent.add_joint())):
            for part in _KEPT:
                setattr(hinge, part, getattr(ball, part))
            hinge.name, hinge.axis = f"{name}_{letter}", [float(letter == axis) for axis in "xyz"]
        changes.append(
            f"joint {name}: a ball, now hinges {name}_x, _y and _z; they lose an axis where _y is at 90 degrees"
        )
    return changes


def _rename_meshes(spec: Any) -> None:
    """Name meshes by their files, where a reader named them by paths."""
    for mesh in [mesh for mesh in spec.meshes if "/" in mesh.name]:
        names = {other.name for other in spec.meshes}
        stem = Path(mesh.file or mesh.name).stem
        name = next(n for n in (stem, *(f"{stem}_{k}" for k in range(2, 999))) if n not in names)
        for geom in spec.geoms:
            if geom.meshname == mesh.name:
                geom.meshname = name
        mesh.name = name


def _keyframe(model: mujoco.MjModel) -> np.ndarray:
    """Return the start of the original model, with three angles for each ball joint."""
    qpos = model.qpos0
    if model.nkey:
        names = [model.key(k).name for k in range(model.nkey)]
        qpos = model.key_qpos[names.index("home") if "home" in names else 0]
    parts = np.split(qpos, model.jnt_qposadr[1:])
    balls = model.jnt_type == int(_BALL)
    return np.concatenate(
        [Rotation.from_quat(part[[1, 2, 3, 0]]).as_euler("XYZ") if ball else part for part, ball in zip(parts, balls)]
    )


def _start(model: mujoco.MjModel, qpos: np.ndarray) -> np.ndarray:
    """Return a start with all joints within their limits, and a floating robot above everything fixed."""
    # joints beyond their limits go to the middle
    for j in range(model.njnt):
        at, (low, high) = int(model.jnt_qposadr[j]), model.jnt_range[j]
        if model.jnt_type[j] != int(_FREE) and model.jnt_limited[j] and not low <= qpos[at] <= high:
            qpos[at] = (low + high) / 2
    # lift the base until it touches nothing; each lift may cause another contact
    data = mujoco.MjData(model)
    for _ in range(200):
        data.qpos[:] = qpos
        mujoco.mj_forward(model, data)
        fixed = model.body_weldid[model.geom_bodyid[data.contact.geom]] == 0 if data.ncon else np.zeros((0, 2), bool)
        deep = -data.contact.dist[fixed.any(axis=1)].min(initial=0.0)
        if model.jnt_type[0] != int(_FREE) or model.jnt_bodyid[0] != 1 or deep < 1e-4:
            break
        qpos[2] += deep + 1e-3
    return qpos


_HINGE_OR_SLIDE = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_OF_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_OF_TENDON, _WRAPS_JOINT = int(mujoco.mjtTrn.mjTRN_TENDON), int(mujoco.mjtWrap.mjWRAP_JOINT)
_FIXED_GAIN, _AFFINE_GAIN = int(mujoco.mjtGain.mjGAIN_FIXED), int(mujoco.mjtGain.mjGAIN_AFFINE)
_NO_BIAS, _AFFINE_BIAS = int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)

MOST_EFFORT, NO_EFFORT = 1e6, 10.0  # N m or N: a larger effort of a file means no limit, which becomes NO_EFFORT


@dataclass(frozen=True)
class Drive:
    """The drive of a joint: limits of its effort, N m or N, and gains of its position control, 0 for a motor."""

    low: float
    high: float
    kp: float = 0.0
    kd: float = 0.0


def replace_actuators(spec: Any, model: mujoco.MjModel, efforts: Mapping[str, float]) -> list[str]:
    """Replace the actuators of ``spec`` by plain drives, in the order of the joints; return the changes.

    Args:
        model: ``spec``, compiled: gains that depend on inertia are computed in it.
        efforts: the greatest efforts, N m or N, of joints without an actuator in the file, as in URDF.
    """
    changes: list[str] = []
    drives: dict[str, Drive] = {}
    converted: dict[str, list[str]] = {}  # joints by the description of their limits
    # a joint's first actuator gives its drive
    for a in range(model.nactuator):
        name = model.actuator(a).name or f"number {a}"
        joints = dict(_joints(model, a))
        if not joints or model.actuator_ctrlnum[a] > 1 or model.actuator_gaintype[a] not in (_FIXED_GAIN, _AFFINE_GAIN):
            changes.append(f"actuator {name}: left out, because it drives no hinge or slide, or is a muscle")
            continue
        if model.actuator_trntype[a] == _OF_TENDON:
            changes.append(
                f"actuator {name}: it drove a tendon, now a motor at each of its joints, {', '.join(joints)}"
            )
        for joint, gear in joints.items():
            if joint in drives:
                changes.append(f"actuator {name}: left out, because joint {joint} has another one")
                continue
            drives[joint], factors, change = _drive(model, a, joint, gear)
            if factors:
                drive = drives[joint]
                converted.setdefault(f"forcerange {drive.low:g} to {drive.high:g}, from {factors}", []).append(joint)
            changes += [f"actuator {name}: {change}"] * bool(change and model.actuator_trntype[a] != _OF_TENDON)
    changes += [f"{join_words(joints)}: {how}" for how, joints in converted.items()]
    in_file, in_order = list(drives), [name for j in range(model.njnt) if (name := model.joint(j).name) in drives]
    if in_file != in_order:
        changes.append(
            f"the actions are in the order of the joints, {', '.join(in_order)}; in the file: {', '.join(in_file)}"
        )
    # joints without an actuator
    for joint, effort in efforts.items():
        if effort > MOST_EFFORT:  # readers of URDF fill in such an effort
            changes.append(f"joint {joint}: it states no effort; its forcerange is now {NO_EFFORT:g}")
        if effort > 0:
            limit = effort if effort <= MOST_EFFORT else NO_EFFORT
            drives[joint] = Drive(-limit, limit)
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    for j in range(model.njnt):
        joint = model.joint(j).name
        if joint in drives:
            _add(spec, joint, drives[joint])
    return changes


def _joints(model: mujoco.MjModel, actuator: int) -> Iterator[tuple[str, float]]:
    """Yield the hinges and slides that an actuator drives, and the effort at each for a force of 1."""
    gear = float(model.actuator_gear[model.actuator_outadr[actuator], 0])
    target = int(model.actuator_trnid[actuator, 0])
    joints: list[tuple[int, float]] = []
    if model.actuator_trntype[actuator] in _OF_JOINT:
        joints = [(target, gear)]
    elif model.actuator_trntype[actuator] == _OF_TENDON:
        first = int(model.tendon_adr[target])
        wraps = range(first, first + int(model.tendon_num[target]))
        if all(model.wrap_type[w] == _WRAPS_JOINT for w in wraps):
            joints = [(int(model.wrap_objid[w]), gear * float(model.wrap_prm[w])) for w in wraps]
    for joint, factor in joints:
        if model.jnt_type[joint] in _HINGE_OR_SLIDE and factor != 0:
            yield model.joint(joint).name, factor


def _drive(model: mujoco.MjModel, a: int, joint: str, gear: float) -> tuple[Drive, str, str]:
    """Return the drive that replaces an actuator, the factors of its limits, and a description of the change."""
    # a position drive stays one: force = gain * (target - position) - damping * velocity
    gain, bias = float(model.actuator_gainprm[a, 0]), model.actuator_biasprm[a]
    affine = model.actuator_biastype[a] == _AFFINE_BIAS
    is_position = affine and gain > 0 and bias[0] == 0 and np.isclose(bias[1], -gain)
    is_position = is_position and model.actuator_trntype[a] in _OF_JOINT
    # the narrowest of all limits of its force
    limits = [gear * model.actuator_forcerange[a]] if model.actuator_forcelimited[a] else []
    change = ""
    c = model.actuator_ctrladr[a]
    factors = [f"gear {gear:g}"] if gear != 1 else []
    if model.actuator_ctrllimited[c] and not (is_position and limits):
        control = model.actuator_ctrlrange[c]
        # the largest force is that at one end of the range with the target at the other end
        limits.append(gear * gain * (np.ptp(control) * np.array([-1, 1]) if is_position else control))
        if is_position:
            change = (
                f"it states no greatest effort; {abs(limits[-1][1]):g} is invented, its gain times the width of its"
                " ctrlrange: set its forcerange"
            )
        else:
            factors.append(f"ctrlrange {control[0]:g} to {control[1]:g}")
            factors += [f"gain {gain:g}"] if gain != 1 else []
    j = model.joint(joint).id
    if model.jnt_actfrclimited[j]:
        limits.append(model.jnt_actfrcrange[j])
    if not limits:
        limits = [abs(gear * gain) * np.array([-1.0, 1.0])]
        change = f"it states no limits; a forcerange of {limits[0][1]:g} is invented"
    ends = np.array([np.sort(limit) for limit in limits])
    low, high = float(ends[:, 0].max()), float(ends[:, 1].min())
    if is_position:
        return Drive(low, high, gain * gear**2, -float(bias[2]) * gear**2), " and ".join(factors), change
    # report what the drive loses
    if affine and np.any(bias[:3] != 0):
        change = f"it was a servo; it is now a motor with a forcerange of {low:g} to {high:g}"
    elif int(model.actuator_dyntype[a]) != int(mujoco.mjtDyn.mjDYN_NONE):
        change = "its activation dynamics are left out"
    return Drive(low, high), " and ".join(factors), change


def _add(spec: Any, joint: str, drive: Drive) -> None:
    """Add a drive to the specification."""
    actuator = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    # set everything that a default class of the file can set
    actuator.gear = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    actuator.actlimited = mujoco.mjtLimited.mjLIMITED_FALSE
    actuator.gaintype, actuator.dyntype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtDyn.mjDYN_NONE
    actuator.gainprm[0] = drive.kp or 1.0
    actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE if drive.kp else mujoco.mjtBias.mjBIAS_NONE
    actuator.biasprm[:3] = (0.0, -drive.kp, -drive.kd)
    actuator.forcelimited, actuator.ctrllimited = mujoco.mjtLimited.mjLIMITED_TRUE, mujoco.mjtLimited.mjLIMITED_FALSE
    actuator.forcerange = [drive.low, drive.high]
