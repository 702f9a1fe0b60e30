"""Damping of free roots and velocity limits of the CPU engine, around a physics step."""

from __future__ import annotations

import numpy as np

from envcoder_bench.isaacgym.cpu_properties import CpuProperties
from envcoder_bench.isaacgym.layout import Layout
from envcoder_bench.isaacgym.numerics import rotation_matrices


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
