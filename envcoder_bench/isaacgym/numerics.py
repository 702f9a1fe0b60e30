"""What every engine computes alike: drives from DOF properties, principal axes, the first state, room for contacts."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from envcoder_bench.isaacgym.layout import Layout
from envcoder_bench.isaacgym.params import DOF_MODE_POS, DOF_MODE_VEL
from envcoder_bench.sim.mujoco_model import max_constraints, touching_pairs

_CONTACTS_OF_A_BODY = 4  # FrankaCabinet, with 16 boxes in a drawer, had 86 of its 31 moving bodies
_FEWEST_CONTACTS = 16
_LEAST_WEIGHT = 1e-3


@dataclass
class Drives:
    """DOF properties in MuJoCo's terms; arrays are ``(..., dofs)``.

    A drive is an actuator: force = ctrl + bias_position q + bias_velocity qdot, within ``force_limit``. In the modes
    NONE and EFFORT stiffness and damping act on the joint instead, as ``spring`` to zero and ``damper``.
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
    lower, upper = properties["lower"].astype(float), properties["upper"].astype(float)
    velocity = properties["velocity"].astype(float)
    return Drives(
        mode=mode,
        stiffness=stiffness,
        damping=damping,
        bias_position=np.where(position, -stiffness, 0.0),
        bias_velocity=np.where(driven, -damping, 0.0),
        force_limit=np.where(driven, np.minimum(np.abs(properties["effort"].astype(float)), 1e30), 1e30),
        spring=np.where(driven, 0.0, stiffness),
        damper=np.where(driven, 0.0, damping),
        armature=properties["armature"].astype(float),
        lower=lower,
        upper=np.maximum(upper, lower + 1e-6),
        max_velocity=np.where(velocity > 0, velocity, np.inf),
    )


def principal_axes(inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the principal moments of a ``(3, 3)`` inertia and the quaternion wxyz of their axes."""
    moments, axes = np.linalg.eigh(inertia)
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(axes).ravel())
    return np.maximum(moments, 1e-12), quat


def first_state(layout: Layout, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return qpos, mocap_pos and mocap_quat of all environments, from the actors' poses ``(num_envs, actors, 7)``.

    Joints start at zero, or at the limit next to it.
    """
    model, num_envs = layout.model, len(poses)
    qpos = np.tile(model.qpos0, (num_envs, 1))
    position, quat = np.zeros((num_envs, model.nmocap, 3)), np.zeros((num_envs, model.nmocap, 4))
    poses = poses.copy()
    poses[..., 3:] /= np.maximum(np.linalg.norm(poses[..., 3:], axis=-1, keepdims=True), 1e-9)
    for k, place in enumerate(layout.places):
        if place.fixed:
            position[:, place.mocap], quat[:, place.mocap] = poses[:, k, :3], poses[:, k, 3:]
        else:
            qpos[:, place.qpos : place.qpos + 7] = poses[:, k]
    lower, upper = model.jnt_range[layout.dof_joint].T
    limited = model.jnt_limited[layout.dof_joint].astype(bool)
    qpos[:, layout.dof_qpos] = np.where(limited, np.clip(0.0, lower, upper), 0.0)
    return qpos, position, quat


def room(model: mujoco.MjModel) -> tuple[int, int]:
    """Return for how many contacts and constraint rows an engine that allocates them once makes room in a world.

    Every pair of shapes at once is more than any world has: a few contacts for each moving body are enough.
    """
    pairs = touching_pairs(model)
    bodies = np.unique(model.geom_bodyid[np.unique(list(pairs))]) if pairs else np.zeros(0, dtype=np.int64)
    moving = int(np.count_nonzero(model.body_weldid[bodies]))
    contacts = min(sum(pairs.values()), max(_FEWEST_CONTACTS, _CONTACTS_OF_A_BODY * moving))
    return max(contacts, min(len(pairs), 2 * contacts)), max_constraints(model, pairs, contacts)


def least_weights(model: mujoco.MjModel) -> np.ndarray:
    """Return ``(nbody,)`` least translational inverse weights, as fractions of the rotational ones, m^2.

    MuJoCo makes a contact as stiff as its bodies are heavy at their centres of mass. A link whose centre lies on its
    joint's axis seems immovable; two of them touch with a stiffness of 1e15, which float32 cannot solve. But they
    touch at a distance from the axis, so a little of what rotation yields there is taken at least.
    """
    reach = np.zeros(model.nbody)
    distance = np.linalg.norm(model.geom_pos - model.body_ipos[model.geom_bodyid], axis=1) + model.geom_rbound
    np.maximum.at(reach, model.geom_bodyid, distance)
    return _LEAST_WEIGHT * reach**2


def dofs_above(model: mujoco.MjModel, body: int) -> list[int]:
    """List the degrees of freedom that move a body."""
    found: list[int] = []
    while body:
        first = int(model.body_dofadr[body])
        found += range(first, first + int(model.body_dofnum[body]))
        body = int(model.body_parentid[body])
    return found


def mass_addresses(model: mujoco.MjModel, columns: np.ndarray) -> np.ndarray:
    """Return where MuJoCo's packed mass matrix has each pair of degrees of freedom, or -1."""
    found, place = np.full((len(columns), len(columns)), -1), {int(dof): k for k, dof in enumerate(columns)}
    for dof, row in place.items():
        start = int(model.M_rowadr[dof])
        for address in range(start, start + int(model.M_rownnz[dof])):
            column = place.get(int(model.M_colind[address]))
            if column is not None:
                found[row, column] = found[column, row] = address
    return found
