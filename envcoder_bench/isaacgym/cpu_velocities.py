"""Damping of bodies and velocity limits of the CPU engine, around a physics step."""

import numpy as np

from envcoder_bench.isaacgym.cpu_properties import CpuProperties
from envcoder_bench.isaacgym.layout import Layout
from envcoder_bench.isaacgym.numerics import quat_multiply, rotation_matrices


def damp_roots(layout: Layout, properties: CpuProperties, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Damp the velocities of free roots before a physics step, as PhysX: those of the centre of mass, by 1 - rate h."""
    for place, rates in zip(layout.places, layout.root_damping):
        if not any(rates):
            continue
        linear, angular = (min(rate * layout.model.opt.timestep, 1.0) for rate in rates)
        velocity, spin = qvel[:, place.qvel : place.qvel + 3], qvel[:, place.qvel + 3 : place.qvel + 6]
        arm = properties.ipos[:, place.root]
        if linear != angular and arm.any():  # qvel has the velocity of the root's origin
            turn = rotation_matrices(qpos[:, place.qpos + 3 : place.qpos + 7])
            moved = (angular - linear) * np.einsum("nij,nj->ni", turn, np.cross(spin, arm))
            velocity[...] = (1.0 - linear) * velocity + moved
        else:
            velocity *= 1.0 - linear
        spin *= 1.0 - angular


def link_damping_forces(
    layout: Layout, properties: CpuProperties, spin: np.ndarray, velocity: np.ndarray, xquat: np.ndarray
) -> np.ndarray:
    """Return the forces and torques that damp the links of actors of several bodies, ``(num_envs, num_bodies, 6)``.

    PhysX applies -m d (v + g h) at the centre of mass and -I d w, with rates d of at most 1 / h, where h is the step
    (scenes "damped arm" of tests/isaac_gym/physx_scenes.json).

    Args:
        spin, velocity: of the bodies, about and of their centres of mass, ``(num_envs, num_bodies, 3)``.
        xquat: orientations of the bodies, ``(num_envs, num_bodies, 4)``, wxyz.
    """
    ids, step = layout.bodies, layout.model.opt.timestep
    rates = np.minimum(layout.link_damping, 1.0 / step)
    weight = (1.0 - layout.model.body_gravcomp[ids])[:, None] * properties.gravity[:, None]
    axes = quat_multiply(xquat.reshape(-1, 4), properties.iquat[:, ids].reshape(-1, 4))  # of inertia
    turn = rotation_matrices(axes).reshape(*xquat.shape[:2], 3, 3)
    own = np.einsum("nbji,nbj->nbi", turn, spin)
    turning = np.einsum("nbij,nbj->nbi", turn, properties.inertia[:, ids] * own)
    moving = properties.mass[:, ids, None] * (velocity + step * weight)
    return -np.concatenate([rates[:, :1] * moving, rates[:, 1:] * turning], axis=-1)


def limit_velocities(layout: Layout, properties: CpuProperties, qpos: np.ndarray, qvel: np.ndarray) -> None:
    """Apply velocity limits; joints have moved with the velocities of the physics step, and move back."""
    columns = layout.dof_qvel
    joint = qvel[:, columns]
    limited = np.clip(joint, -properties.max_velocity, properties.max_velocity)
    if (limited != joint).any():
        qpos[:, layout.dof_qpos] -= layout.model.opt.timestep * (joint - limited)
        qvel[:, columns] = limited
    for place, limits in zip(layout.places, layout.max_velocity):
        if place.fixed:
            continue
        for first, limit in zip((place.qvel, place.qvel + 3), limits):
            part = qvel[:, first : first + 3]
            speed = np.sqrt((part * part).sum(axis=1))
            fast = speed > limit
            if fast.any():
                part[fast] *= (limit / speed[fast])[:, None]
