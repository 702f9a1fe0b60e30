"""Warp kernels around a step: commands, damping, velocity limits, and resets of worlds whose physics failed."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import warp as wp

from isaacgym_mujoco.api.params import DOF_MODE_POS, DOF_MODE_VEL
from isaacgym_mujoco.engine import numerics
from isaacgym_mujoco.engine.cuda_state import FIXED, QPOS, QVEL, ROOT, Motion
from isaacgym_mujoco.physics.warp_functions import is_within, reset_motion, rotate, velocity_at

MAX_POSITION = wp.constant(numerics.MAX_POSITION)
MAX_RATE = wp.constant(1.0e10)  # MuJoCo's own limit of velocities, accelerations and commands
MODE_POS = wp.constant(DOF_MODE_POS)
MODE_VEL = wp.constant(DOF_MODE_VEL)
OVERPOWERED, BRAKE = wp.constant(numerics.OVERPOWERED), wp.constant(numerics.BRAKE)


@wp.struct
class Drives:
    """Drives and their targets, ``(num_envs, dofs)``; those that are equal in all worlds have one row."""

    mode: wp.array2d[wp.int32]
    stiffness: wp.array2d[wp.float32]
    damping: wp.array2d[wp.float32]
    position_targets: wp.array2d[wp.float32]
    velocity_targets: wp.array2d[wp.float32]


@wp.func
def reset_world(env: int, first: Motion, motion: Motion):
    """Reset a world to its first state."""
    reset_motion(env, first.qpos, motion.qpos, motion.qvel, motion.qacc_warmstart)
    for i in range(motion.mocap_pos.shape[1]):
        motion.mocap_pos[env, i] = first.mocap_pos[env, i]
        motion.mocap_quat[env, i] = first.mocap_quat[env, i]


@wp.func
def is_stable(env: int, position_limits: wp.array[wp.float32], motion: Motion) -> bool:
    """Return whether a world's positions and velocities are within the limits."""
    good = wp.bool(True)
    for i in range(motion.qpos.shape[1]):
        good = good and is_within(motion.qpos[env, i], position_limits[i])
    for i in range(motion.qvel.shape[1]):
        good = good and is_within(motion.qvel[env, i], MAX_RATE)
    return good


@wp.kernel(enable_backward=False)
def load_commands(
    drives: Drives,
    bodies: wp.array[wp.int32],
    position_limits: wp.array[wp.float32],
    first: Motion,
    efforts: wp.array2d[wp.float32],
    forces: wp.array2d[wp.float32],
    motion: Motion,
    ctrl: wp.array2d[wp.float32],
    xfrc: wp.array2d[wp.spatial_vector],
    failed: wp.array[wp.bool],
):
    """Load commands and forces, and zero those that act in one step, one thread per world.

    A world with a number that is not finite or beyond the limits is reset, and gets neither commands nor forces.
    """
    env = wp.tid()
    good = wp.bool(True)
    # commands of the drives: efforts, or the forces of springs and dampers
    for dof in range(efforts.shape[1]):
        row = env % drives.mode.shape[0]
        mode = drives.mode[row, dof]
        command = efforts[env, dof]
        damped = drives.damping[row, dof] * drives.velocity_targets[env, dof]
        if mode == MODE_POS:
            command = drives.stiffness[row, dof] * drives.position_targets[env, dof] + damped
        elif mode == MODE_VEL:
            command = damped
        good = good and wp.isfinite(command)
        ctrl[env, dof] = wp.clamp(command, -MAX_RATE, MAX_RATE)
        efforts[env, dof] = 0.0
    # forces and torques that a task applies for one step
    for body in range(bodies.shape[0]):
        wrench = wp.spatial_vector()
        for i in range(6):
            wrench[i] = forces[env, 6 * body + i]
            good = good and wp.isfinite(wrench[i])
            forces[env, 6 * body + i] = 0.0
        xfrc[env, bodies[body]] = wrench
    # moved kinematic actors, and the state itself
    for i in range(motion.mocap_pos.shape[1]):
        for k in range(3):
            good = good and is_within(motion.mocap_pos[env, i][k], MAX_POSITION)
    good = good and is_stable(env, position_limits, motion)
    failed[env] = not good
    if not good:
        for dof in range(efforts.shape[1]):
            ctrl[env, dof] = 0.0
        for body in range(bodies.shape[0]):
            xfrc[env, bodies[body]] = wp.spatial_vector()
        reset_world(env, first, motion)


@wp.func
def finite_or_zero(x: float) -> float:
    return wp.where(wp.isfinite(x), x, 0.0)


@wp.kernel(enable_backward=False)
def steady(
    drives: Drives,
    effort: wp.array2d[wp.float32],
    max_velocity: wp.array2d[wp.float32],
    invweight0: wp.array2d[wp.float32],
    dof_qpos: wp.array[wp.int32],
    dof_qvel: wp.array[wp.int32],
    timestep: wp.array[wp.float32],
    motion: Motion,
    joint_damping: wp.array2d[wp.float32],
):
    """Damp joints as ``numerics.steadying``, one thread per world and DOF; each world has rows."""
    env, dof = wp.tid()
    mode = drives.mode[env, dof]
    if mode != MODE_POS and mode != MODE_VEL:
        return
    step, column = timestep[env % timestep.shape[0]], dof_qvel[dof]
    error = finite_or_zero(drives.position_targets[env, dof] - motion.qpos[env, dof_qpos[dof]])
    velocity = motion.qvel[env, column]
    target = finite_or_zero(drives.velocity_targets[env, dof])
    stiffness, damping = wp.where(mode == MODE_POS, drives.stiffness[env, dof], 0.0), drives.damping[env, dof]
    most, limit = effort[env, dof], max_velocity[env, dof]
    weight = 1.0 / wp.clamp(invweight0[env % invweight0.shape[0], column], 1.0e-12, 1.0e9)
    extra = wp.float32(0.0)
    # the same names and order as in ``numerics.steadying``, which has the reasons
    pulled, reach, firm = stiffness * error, wp.abs(error) / step, damping + step * stiffness
    wanted = pulled + damping * target
    size, push = wp.abs(pulled), wanted - damping * velocity
    pull = wp.min(size, most)
    spring = (velocity + step * wanted / weight) / (1.0 + step * firm / weight)
    # a drive that the clamp weakens now and not at the end of the step follows the implicit spring
    if wp.abs(push) > most and wp.abs(wanted - firm * spring) <= most:
        free = velocity + step * wp.clamp(push, -most, most) / weight
        slowed = weight / step * (wp.abs(free) / wp.max(wp.abs(spring), 1.0e-9) - 1.0)
        extra = wp.clamp(slowed, 0.0, firm)
    # a drive that alone would be much faster than the limit is slowed down
    speed = pull * step / weight
    if size <= most:
        speed = wp.min(speed, reach)
    if mode == MODE_POS and speed > OVERPOWERED * limit:
        extra = wp.max(extra, pull / wp.max(wp.min(limit / BRAKE, reach), 1.0e-9))
    joint_damping[env, column] = extra


@wp.kernel(enable_backward=False)
def damp_roots(
    places: wp.array2d[wp.int32],
    root_damping: wp.array2d[wp.float32],
    body_ipos: wp.array2d[wp.vec3],
    timestep: wp.array[wp.float32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
):
    """Damp the velocities of free roots as ``cpu_velocities.damp_roots``, one thread per world and actor."""
    env, actor = wp.tid()
    step = timestep[env % timestep.shape[0]]
    linear = wp.min(root_damping[actor, 0] * step, 1.0)
    angular = wp.min(root_damping[actor, 1] * step, 1.0)
    if places[actor, FIXED] != 0 or (linear == 0.0 and angular == 0.0):
        return
    at, turn = places[actor, QVEL], places[actor, QPOS] + 3
    quat = wp.vec4(qpos[env, turn], qpos[env, turn + 1], qpos[env, turn + 2], qpos[env, turn + 3])
    spin = wp.vec3(qvel[env, at + 3], qvel[env, at + 4], qvel[env, at + 5])
    arm = body_ipos[env % body_ipos.shape[0], places[actor, ROOT]]
    moved = (angular - linear) * rotate(quat, wp.cross(spin, arm))  # qvel has the velocity of the root's origin
    for i in range(3):
        qvel[env, at + i] = (1.0 - linear) * qvel[env, at + i] + moved[i]
        qvel[env, at + 3 + i] = (1.0 - angular) * qvel[env, at + 3 + i]


@wp.kernel(enable_backward=False)
def damp_links(
    bodies: wp.array[wp.int32],
    link_damping: wp.array2d[wp.float32],
    timestep: wp.array[wp.float32],
    gravity: wp.array[wp.vec3],
    body_gravcomp: wp.array2d[wp.float32],
    body_mass: wp.array2d[wp.float32],
    body_inertia: wp.array2d[wp.vec3],
    body_rootid: wp.array[wp.int32],
    ximat: wp.array2d[wp.mat33],
    xipos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cvel: wp.array2d[wp.spatial_vector],
    loads: wp.array2d[wp.spatial_vector],
    xfrc: wp.array2d[wp.spatial_vector],
):
    """Add the forces of ``cpu_velocities.link_damping_forces`` to ``loads``, one thread per world and body."""
    env, number = wp.tid()
    body, step = bodies[number], timestep[env % timestep.shape[0]]
    linear, angular = wp.min(link_damping[number, 0], 1.0 / step), wp.min(link_damping[number, 1], 1.0 / step)
    if linear == 0.0 and angular == 0.0:
        return
    weight = (1.0 - body_gravcomp[env % body_gravcomp.shape[0], body]) * gravity[env % gravity.shape[0]]
    velocity = velocity_at(cvel[env, body], xipos[env, body] - subtree_com[env, body_rootid[body]])
    turn, spin = ximat[env, body], wp.spatial_top(cvel[env, body])
    momentum = wp.cw_mul(body_inertia[env % body_inertia.shape[0], body], wp.transpose(turn) * spin)
    force = -linear * body_mass[env % body_mass.shape[0], body] * (velocity + step * weight)
    xfrc[env, body] = loads[env, body] + wp.spatial_vector(force, -angular * (turn * momentum))


@wp.kernel(enable_backward=False)
def limit_velocities(
    dof_qpos: wp.array[wp.int32],
    dof_qvel: wp.array[wp.int32],
    max_velocity: wp.array2d[wp.float32],
    places: wp.array2d[wp.int32],
    root_limits: wp.array2d[wp.float32],
    timestep: wp.array[wp.float32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
):
    """Clamp the velocities of joints, and the linear and angular speed of free roots, one thread per world.

    Joints have moved with the velocities of the physics step, and move back.
    """
    env = wp.tid()
    for dof in range(dof_qvel.shape[0]):
        at = dof_qvel[dof]
        limit = max_velocity[env % max_velocity.shape[0], dof]
        speed = qvel[env, at]
        if wp.abs(speed) > limit:
            limited = wp.clamp(speed, -limit, limit)
            moved = timestep[env % timestep.shape[0]] * (speed - limited)
            qpos[env, dof_qpos[dof]] = qpos[env, dof_qpos[dof]] - moved
            qvel[env, at] = limited
    # the first three velocities of a free joint are linear, the others angular
    for actor in range(places.shape[0]):
        if places[actor, FIXED] == 0:
            for part in range(2):
                at = places[actor, QVEL] + 3 * part
                speed = wp.length(wp.vec3(qvel[env, at], qvel[env, at + 1], qvel[env, at + 2]))
                limit = root_limits[actor, part]
                if speed > limit:
                    for i in range(3):
                        qvel[env, at + i] = qvel[env, at + i] * (limit / speed)


@wp.kernel(enable_backward=False)
def finish(
    dof_qvel: wp.array[wp.int32],
    qacc: wp.array2d[wp.float32],
    qfrc_actuator: wp.array2d[wp.float32],
    dropping: int,
    position_limits: wp.array[wp.float32],
    first: Motion,
    motion: Motion,
    failed: wp.array[wp.bool],
    blow_ups: wp.array[wp.int32],
    overflow: wp.array[wp.int32],
    overflows: wp.array[wp.int32],
    dof_forces: wp.array2d[wp.float32],
    contacts: wp.array2d[wp.float32],
):
    """Reset and count worlds whose physics failed, and copy the drives' forces, one thread per world.

    An overflow is counted if a world's bits in ``overflow`` include one of ``dropping``.
    """
    env = wp.tid()
    bad = failed[env] or not is_stable(env, position_limits, motion)
    for i in range(qacc.shape[1]):
        bad = bad or not is_within(qacc[env, i], MAX_RATE)
    failed[env] = bad
    # a failed world's contacts say nothing of its buffers
    if (overflow[env] & dropping) != 0 and not bad:
        wp.atomic_add(overflows, 0, 1)
    overflow[env] = 0
    for dof in range(dof_forces.shape[1]):
        dof_forces[env, dof] = qfrc_actuator[env, dof_qvel[dof]]
    if bad:
        wp.atomic_add(blow_ups, 0, 1)
        reset_world(env, first, motion)
        for dof in range(dof_forces.shape[1]):
            dof_forces[env, dof] = 0.0
        for i in range(contacts.shape[1]):
            contacts[env, i] = 0.0
