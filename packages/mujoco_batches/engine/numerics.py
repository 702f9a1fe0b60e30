"""Computations that both engines share: drives of DOF properties, the first state, room for contacts, addresses."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from dataclasses import dataclass

import mujoco
import numpy as np

from mujoco_batches.engine.layout import Layout
from mujoco_batches.physics.models import max_constraints, touching_pairs
from mujoco_batches.scene.params import DOF_MODE_POS, DOF_MODE_VEL

_CONTACTS_OF_A_BODY = 4  # FrankaCabinet, with 16 boxes in a drawer, had 86 of its 31 moving bodies
_FEWEST_CONTACTS = 16
_LEAST_WEIGHT = 1e-3
_UNLIMITED = 1e30  # a bound that no number reaches
MAX_POSITION = 1e4  # m
_LIGHT = 1e-4  # share of an actor's mass below which MuJoCo Warp fails
_LEAST_INERTIA = 1e-9  # kg or kg m^2
OVERPOWERED = 8.0  # times its joint's velocity limit that a drive alone would reach in a step
BRAKE = 0.8  # share of such a drive's force that damping takes at the limit


@dataclass
class Drives:
    """DOF properties as parameters of MuJoCo's actuators and joints; arrays are ``(..., dofs)``.

    A drive is an actuator: force = ctrl + bias_position q + bias_velocity qdot, clamped to ``force_limit``. In the
    modes NONE and EFFORT stiffness and damping belong to the joint: a ``spring`` to zero and a ``damper``.
    """

    mode: np.ndarray
    stiffness: np.ndarray
    damping: np.ndarray
    bias_position: np.ndarray
    bias_velocity: np.ndarray
    force_limit: np.ndarray
    spring: np.ndarray
    damper: np.ndarray
    armature: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    max_velocity: np.ndarray


def drives(properties: np.ndarray) -> Drives:
    """Convert a structured array of ``DOF_PROPERTIES``."""
    mode = properties["driveMode"].astype(np.int32)
    position = mode == DOF_MODE_POS
    driven = position | (mode == DOF_MODE_VEL)
    stiffness, damping = properties["stiffness"].astype(float), properties["damping"].astype(float)
    limited = properties["hasLimits"].astype(bool)
    lower = np.where(limited, properties["lower"], -_UNLIMITED).astype(float)
    upper = np.where(limited, properties["upper"], _UNLIMITED).astype(float)
    velocity, effort = properties["velocity"].astype(float), np.abs(properties["effort"].astype(float))
    # a joint that is not driven by its position has a spring; one that is driven by nothing has a damper
    return Drives(
        mode=mode,
        stiffness=stiffness,
        damping=damping,
        bias_position=np.where(position, -stiffness, 0.0),
        bias_velocity=np.where(driven, -damping, 0.0),
        force_limit=np.where(driven | (effort > 0), np.minimum(effort, _UNLIMITED), _UNLIMITED),
        spring=np.where(driven, 0.0, stiffness),
        damper=np.where(driven, 0.0, damping),
        armature=properties["armature"].astype(float),
        lower=lower,
        upper=np.maximum(upper, lower + 1e-6),
        max_velocity=np.where(velocity > 0, velocity, np.inf),
    )


def may_need_steadying(settings: Drives, inertia: np.ndarray, step: float) -> bool:
    """Return whether ``steadying`` may have to damp a drive.

    Args:
        inertia: ``joint_inertias``, or less.
        step: the physics step, s.
    """
    inertia, width = np.maximum(inertia, _LEAST_INERTIA), settings.upper - settings.lower
    spring = (settings.mode == DOF_MODE_POS) & (settings.stiffness > 0)
    damper = ((settings.mode == DOF_MODE_POS) | (settings.mode == DOF_MODE_VEL)) & ~spring
    firm = step * (settings.damping + step * np.where(spring, settings.stiffness, 0.0)) > inertia
    with np.errstate(invalid="ignore"):  # no stiffness and no limits of the position
        speed = np.minimum(settings.force_limit * step / inertia, width / step)
        reach = settings.stiffness * width + settings.damping * np.minimum(settings.max_velocity, width / step)
    fast, clamped = speed > OVERPOWERED * settings.max_velocity, firm & (reach > settings.force_limit)
    return bool((spring & (fast | clamped)).any() or (damper & firm & (settings.force_limit < _UNLIMITED)).any())


def joint_inertias(invweight0: np.ndarray) -> np.ndarray:
    """Return the inertia that each joint moves while all others are free, from MuJoCo's ``dof_invweight0``."""
    return 1.0 / np.clip(invweight0, 1e-12, 1.0 / _LEAST_INERTIA)


def steadying(
    mode: np.ndarray,
    stiffness: np.ndarray,
    damping: np.ndarray,
    effort: np.ndarray,
    max_velocity: np.ndarray,
    inertia: np.ndarray,
    step: float,
    error: np.ndarray,
    velocity: np.ndarray,
    target: np.ndarray,
) -> np.ndarray:
    """Return the joint damping that drives need to move as PhysX's do, ``(num_envs, dofs)``.

    Two things differ. PhysX clamps the force of an implicit spring at the end of the step; MuJoCo clamps it at the
    beginning, and its integrator does not treat a clamped actuator as a spring. Therefore a firm drive throws a light
    joint from one velocity limit to the other. And PhysX solves velocity limits together with the contacts; here they
    are applied after a step, in which the joint has pressed on its contacts with all the force of its drive.

    So a drive whose force is beyond its limit now, and within it at the end of the step, gets the damping with which it
    ends as the implicit spring. A position drive that alone would be much faster than its joint's limit gets the
    damping with which it is a quarter faster than the limit, or reaches its target. A joint that is held by something
    has all its force.

    Args:
        inertia: ``joint_inertias``; as the arguments before it ``(num_envs, dofs)``.
        step: the physics step, s.
        error, velocity, target: targets minus positions, velocities, and velocity targets, ``(num_envs, dofs)``.
    """
    stiffness = np.where(mode == DOF_MODE_POS, stiffness, 0.0)
    pulled, reach, firm = stiffness * error, np.abs(error) / step, damping + step * stiffness
    wanted = pulled + damping * target
    pull, push = np.minimum(np.abs(pulled), effort), wanted - damping * velocity
    spring = (velocity + step * wanted / inertia) / (1.0 + step * firm / inertia)  # its velocity at the end
    # a drive that the clamp weakens now and not at the end of the step follows the implicit spring
    clamped = (np.abs(push) > effort) & (np.abs(wanted - firm * spring) <= effort)
    free = velocity + step * np.clip(push, -effort, effort) / inertia
    slowed = inertia / step * (np.abs(free) / np.maximum(np.abs(spring), 1e-9) - 1.0)
    follow = np.where(clamped, np.clip(slowed, 0.0, firm), 0.0)

    # a drive that alone would be much faster than the limit is slowed down
    speed = np.where(np.abs(pulled) > effort, pull * step / inertia, np.minimum(pull * step / inertia, reach))
    strong = speed > OVERPOWERED * max_velocity
    brake = np.where(strong, pull / np.maximum(np.minimum(max_velocity / BRAKE, reach), 1e-9), 0.0)
    return np.where(mode == DOF_MODE_POS, np.maximum(follow, brake), np.where(mode == DOF_MODE_VEL, follow, 0.0))


def principal_axes(inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the principal moments of a ``(3, 3)`` inertia and the quaternion wxyz of their axes."""
    moments, axes = np.linalg.eigh(inertia)
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(axes).ravel())
    return np.maximum(moments, 1e-12), quat


def first_state(layout: Layout, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return qpos, mocap_pos and mocap_quat of all environments, from the actors' poses ``(num_envs, actors, 7)``.

    Joints start at zero, clamped to their limits.
    """
    model, num_envs = layout.model, len(poses)
    qpos = np.tile(model.qpos0, (num_envs, 1))
    position, quat = np.zeros((num_envs, model.nmocap, 3)), np.zeros((num_envs, model.nmocap, 4))
    poses = poses.copy()
    poses[..., 3:] /= np.maximum(np.linalg.norm(poses[..., 3:], axis=-1, keepdims=True), 1e-9)
    for k, actor in enumerate(layout.places):
        if actor.fixed:
            position[:, actor.mocap], quat[:, actor.mocap] = poses[:, k, :3], poses[:, k, 3:]
        else:
            qpos[:, actor.qpos : actor.qpos + 7] = poses[:, k]
    lower, upper = model.jnt_range[layout.dof_joint].T
    limited = model.jnt_limited[layout.dof_joint].astype(bool)
    qpos[:, layout.dof_qpos] = np.where(limited, np.clip(0.0, lower, upper), 0.0)
    return qpos, position, quat


def massless_roots(layout: Layout) -> list[str]:
    """Return the names of free roots that move joints and have, with what is welded to them, nearly no mass."""
    model, names = layout.model, []
    for actor in layout.places:
        bodies = layout.bodies[actor.bodies]
        welded = bodies[model.body_weldid[bodies] == model.body_weldid[actor.root]]
        light = model.body_mass[welded].sum() < _LIGHT * model.body_mass[bodies].sum()
        if not actor.fixed and light:
            names.append(model.body(actor.root).name.split("/", 1)[1])
    return names


def position_limits(model: mujoco.MjModel) -> np.ndarray:
    """Return the numbers of qpos beyond which an environment is unstable, ``(nq,)``; an angle must only be finite."""
    limits = np.full(model.nq, MAX_POSITION)
    limits[model.jnt_qposadr[model.jnt_type == int(mujoco.mjtJoint.mjJNT_HINGE)]] = _UNLIMITED
    return limits


def consecutive(columns: np.ndarray) -> slice | np.ndarray:
    """Return columns that follow one another as a slice, which NumPy reads and writes faster."""
    if len(columns) and np.array_equal(columns, np.arange(columns[0], columns[0] + len(columns))):
        return slice(int(columns[0]), int(columns[0]) + len(columns))
    return columns


def room(model: mujoco.MjModel) -> tuple[int, int]:
    """Return the number of contacts and of constraint rows to allocate per world.

    A few contacts per moving body are enough; all pairs of shapes never touch at once.
    """
    pairs = touching_pairs(model)
    bodies = np.unique(model.geom_bodyid[np.unique(list(pairs))]) if pairs else np.zeros(0, dtype=np.int64)
    moving = int(np.count_nonzero(model.body_weldid[bodies]))
    contacts = min(sum(pairs.values()), max(_FEWEST_CONTACTS, _CONTACTS_OF_A_BODY * moving))
    return max(contacts, min(len(pairs), 2 * contacts)), max_constraints(model, pairs, contacts)


def least_weights(model: mujoco.MjModel) -> np.ndarray:
    """Return ``(nbody,)`` lower bounds of translational inverse weights, as fractions of the rotational ones, m^2.

    MuJoCo scales a contact's stiffness by the inverse weights of its bodies at their centres of mass. For a link whose
    centre lies on its joint's axis the weight is infinite, and two such links touch with a stiffness of 1e15, which
    float32 cannot solve. But they touch at a distance from the axis, so the bound adds a fraction of the rotational
    weight there.
    """
    reach = np.zeros(model.nbody)
    distance = np.linalg.norm(model.geom_pos - model.body_ipos[model.geom_bodyid], axis=1) + model.geom_rbound
    np.maximum.at(reach, model.geom_bodyid, distance)
    return _LEAST_WEIGHT * reach**2
