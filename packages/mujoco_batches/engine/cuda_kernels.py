# type: ignore  # Warp compiles these functions; they are Python in their syntax alone
"""Warp's kernels of the engine: readers and writers of states, what is around a step, and outputs.

A model's numbers have one row for all worlds, or one for each: ``world % rows`` is that of a world. Quaternions are
wxyz, as MuJoCo Warp stores them, except in rows of 13 numbers.
"""

import warp as wp

from mujoco_batches.engine import numerics
from mujoco_batches.physics.warp_contacts import wrench_on
from mujoco_batches.physics.warp_functions import (
    as_vec4,
    conjugate,
    is_within,
    multiply,
    reset_motion,
    rotate,
    set_state_row,
    velocity_at,
)
from mujoco_batches.scene.params import DOF_MODE_POS, DOF_MODE_VEL

MAX_POSITION = wp.constant(numerics.MAX_POSITION)
MAX_RATE = wp.constant(1.0e10)  # MuJoCo's own limit of velocities, accelerations and commands
MODE_POS, MODE_VEL = wp.constant(DOF_MODE_POS), wp.constant(DOF_MODE_VEL)
OVERPOWERED, BRAKE = wp.constant(numerics.OVERPOWERED), wp.constant(numerics.BRAKE)
# columns of an actor's row in ``places``
FIXED, QPOS, QVEL, MOCAP, ROOT = (wp.constant(column) for column in range(5))


@wp.struct
class Layout:
    """An environment's layout, as ``engine.layout.Layout``, and the state at the start of each world."""

    bodies: wp.array[wp.int32]
    dof_qpos: wp.array[wp.int32]
    dof_qvel: wp.array[wp.int32]
    dof_actors: wp.array[wp.int32]
    places: wp.array2d[wp.int32]
    position_limits: wp.array[wp.float32]
    root_limits: wp.array2d[wp.float32]
    root_damping: wp.array2d[wp.float32]
    link_damping: wp.array2d[wp.float32]
    sensor_bodies: wp.array[wp.int32]
    sensor_pos: wp.array[wp.vec3]
    sensor_quat: wp.array[wp.vec4]
    sensor_weights: wp.array[wp.vec2]  # weights of the net force and of the contacts' force
    sensor_in_world: wp.array[wp.bool]
    first_qpos: wp.array2d[wp.float32]
    first_mocap_pos: wp.array2d[wp.vec3]
    first_mocap_quat: wp.array2d[wp.quat]


@wp.struct
class Model:
    """The fields of MuJoCo Warp's model that kernels use; those that are replaced must be set here, too."""

    timestep: wp.array[wp.float32]
    gravity: wp.array[wp.vec3]
    body_parentid: wp.array[wp.int32]
    body_rootid: wp.array[wp.int32]
    body_dofadr: wp.array[wp.int32]
    body_dofnum: wp.array[wp.int32]
    body_gravcomp: wp.array2d[wp.float32]
    body_mass: wp.array2d[wp.float32]
    body_inertia: wp.array2d[wp.vec3]
    body_ipos: wp.array2d[wp.vec3]
    body_iquat: wp.array2d[wp.quat]
    dof_armature: wp.array2d[wp.float32]
    dof_damping: wp.array2d[wp.float32]
    dof_invweight0: wp.array2d[wp.float32]


@wp.struct
class Data:
    """The fields of MuJoCo Warp's data that kernels use; fixed roots are mocap bodies."""

    qpos: wp.array2d[wp.float32]
    qvel: wp.array2d[wp.float32]
    qacc: wp.array2d[wp.float32]
    qacc_warmstart: wp.array2d[wp.float32]
    qfrc_actuator: wp.array2d[wp.float32]
    mocap_pos: wp.array2d[wp.vec3]
    mocap_quat: wp.array2d[wp.quat]
    ctrl: wp.array2d[wp.float32]
    xfrc_applied: wp.array2d[wp.spatial_vector]
    xpos: wp.array2d[wp.vec3]
    xquat: wp.array2d[wp.quat]
    xipos: wp.array2d[wp.vec3]
    ximat: wp.array2d[wp.mat33]
    subtree_com: wp.array2d[wp.vec3]
    cvel: wp.array2d[wp.spatial_vector]
    cdof: wp.array2d[wp.spatial_vector]
    cdof_dot: wp.array2d[wp.spatial_vector]
    M: wp.array2d[wp.float32]
    overflow: wp.array[wp.int32]


@wp.struct
class Drives:
    """Drives, ``(1 or num_envs, dofs)``, their commands, and loads on bodies, ``(num_envs, 6 * num_bodies)``."""

    mode: wp.array2d[wp.int32]
    stiffness: wp.array2d[wp.float32]
    damping: wp.array2d[wp.float32]
    effort: wp.array2d[wp.float32]
    max_velocity: wp.array2d[wp.float32]
    position_targets: wp.array2d[wp.float32]
    velocity_targets: wp.array2d[wp.float32]
    efforts: wp.array2d[wp.float32]
    forces: wp.array2d[wp.float32]


@wp.struct
class Results:
    """What a step leaves for its readers."""

    blown: wp.array[wp.bool]
    blow_ups: wp.array[wp.int32]
    overflows: wp.array[wp.int32]
    dropped: wp.array[wp.bool]
    dof_forces: wp.array2d[wp.float32]
    contacts: wp.array2d[wp.float32]
    accelerations: wp.array2d[wp.spatial_vector]
    wrenches: wp.array2d[wp.spatial_vector]
    sensors: wp.array3d[wp.float32]


# states of roots and DOFs


@wp.kernel(enable_backward=False)
def mark_actors(rows: wp.array[wp.int32], mask: wp.array[wp.bool]):
    """Set the mask for the actors ``rows``; rows out of range are ignored."""
    row = rows[wp.tid()]
    if row >= 0 and row < mask.shape[0]:
        mask[row] = True


@wp.kernel(enable_backward=False)
def read_roots(layout: Layout, model: Model, data: Data, out: wp.array2d[wp.float32]):
    """Fill a root's 13 numbers, one thread per world and actor."""
    world, actor = wp.tid()
    position = wp.vec3()
    quat = wp.vec4()
    linear = wp.vec3()
    angular = wp.vec3()
    if layout.places[actor, FIXED] != 0:
        at = layout.places[actor, MOCAP]
        position = data.mocap_pos[world, at]
        quat = as_vec4(data.mocap_quat[world, at])
    else:
        at = layout.places[actor, QPOS]
        first = layout.places[actor, QVEL]
        for i in range(3):
            position[i] = data.qpos[world, at + i]
            linear[i] = data.qvel[world, first + i]
            angular[i] = data.qvel[world, first + 3 + i]
        for i in range(4):
            quat[i] = data.qpos[world, at + 3 + i]
        # MuJoCo's angular velocity is in the body's frame. Its linear velocity is that of the origin; Isaac Gym's is
        # that of the centre of mass.
        angular = rotate(quat, angular)
        com = rotate(quat, model.body_ipos[world % model.body_ipos.shape[0], layout.places[actor, ROOT]])
        linear = linear + wp.cross(angular, com)
    set_state_row(world * layout.places.shape[0] + actor, 0, position, quat, linear, angular, out)


@wp.kernel(enable_backward=False)
def write_roots(layout: Layout, model: Model, data: Data, mask: wp.array2d[wp.bool], states: wp.array2d[wp.float32]):
    """The reverse of ``read_roots`` for masked actors; clears the warm start of their worlds."""
    world, actor = wp.tid()
    if not mask[world, actor]:
        return
    row = world * layout.places.shape[0] + actor
    quat = wp.vec4(states[row, 6], states[row, 3], states[row, 4], states[row, 5])
    norm = wp.length(quat)
    quat = quat / norm if norm > 1.0e-9 else wp.vec4(1.0, 0.0, 0.0, 0.0)
    if layout.places[actor, FIXED] != 0:
        at = layout.places[actor, MOCAP]
        data.mocap_pos[world, at] = wp.vec3(states[row, 0], states[row, 1], states[row, 2])
        data.mocap_quat[world, at] = wp.quat(quat[0], quat[1], quat[2], quat[3])  # wxyz, as MuJoCo Warp stores them
    else:
        at = layout.places[actor, QPOS]
        first = layout.places[actor, QVEL]
        linear = wp.vec3(states[row, 7], states[row, 8], states[row, 9])
        angular = wp.vec3(states[row, 10], states[row, 11], states[row, 12])
        com = rotate(quat, model.body_ipos[world % model.body_ipos.shape[0], layout.places[actor, ROOT]])
        linear = linear - wp.cross(angular, com)
        angular = rotate(conjugate(quat), angular)
        for i in range(3):
            data.qpos[world, at + i] = states[row, i]
            data.qvel[world, first + i] = linear[i]
            data.qvel[world, first + 3 + i] = angular[i]
        for i in range(4):
            data.qpos[world, at + 3 + i] = quat[i]
    for i in range(data.qacc_warmstart.shape[1]):
        data.qacc_warmstart[world, i] = 0.0


@wp.kernel(enable_backward=False)
def read_dofs(layout: Layout, data: Data, out: wp.array2d[wp.float32]):
    """Fill a DOF's position and velocity, one thread per world and DOF."""
    world, dof = wp.tid()
    row = world * layout.dof_qpos.shape[0] + dof
    out[row, 0] = data.qpos[world, layout.dof_qpos[dof]]
    out[row, 1] = data.qvel[world, layout.dof_qvel[dof]]


@wp.kernel(enable_backward=False)
def write_dofs(layout: Layout, data: Data, mask: wp.array2d[wp.bool], states: wp.array2d[wp.float32]):
    """Set the DOFs of masked actors, one thread per world; clears the warm start of their worlds."""
    world = wp.tid()
    written = wp.bool(False)
    for actor in range(mask.shape[1]):
        written = written or mask[world, actor]
    if not written:
        return
    for dof in range(layout.dof_qpos.shape[0]):
        if mask[world, layout.dof_actors[dof]]:
            row = world * layout.dof_qpos.shape[0] + dof
            data.qpos[world, layout.dof_qpos[dof]] = states[row, 0]
            data.qvel[world, layout.dof_qvel[dof]] = states[row, 1]
    for i in range(data.qacc_warmstart.shape[1]):
        data.qacc_warmstart[world, i] = 0.0


# a step


@wp.func
def reset_world(world: int, layout: Layout, data: Data):
    """Reset a world to its first state."""
    reset_motion(world, layout.first_qpos, data.qpos, data.qvel, data.qacc_warmstart)
    for i in range(data.mocap_pos.shape[1]):
        data.mocap_pos[world, i] = layout.first_mocap_pos[world, i]
        data.mocap_quat[world, i] = layout.first_mocap_quat[world, i]


@wp.func
def is_stable(world: int, layout: Layout, data: Data) -> bool:
    """Return whether a world's positions and velocities are within the limits."""
    good = wp.bool(True)
    for i in range(data.qpos.shape[1]):
        good = good and is_within(data.qpos[world, i], layout.position_limits[i])
    for i in range(data.qvel.shape[1]):
        good = good and is_within(data.qvel[world, i], MAX_RATE)
    return good


@wp.kernel(enable_backward=False)
def load_commands(layout: Layout, data: Data, drives: Drives, results: Results):
    """Load commands and forces, and zero those that act in one step, one thread per world.

    A world with a number that is not finite or beyond the limits is reset, and gets neither commands nor forces.
    """
    world = wp.tid()
    good = wp.bool(True)
    # commands of the drives: efforts, or the forces of springs and dampers
    for dof in range(drives.efforts.shape[1]):
        row = world % drives.mode.shape[0]
        mode = drives.mode[row, dof]
        command = drives.efforts[world, dof]
        damped = drives.damping[row, dof] * drives.velocity_targets[world, dof]
        if mode == MODE_POS:
            command = drives.stiffness[row, dof] * drives.position_targets[world, dof] + damped
        elif mode == MODE_VEL:
            command = damped
        good = good and wp.isfinite(command)
        data.ctrl[world, dof] = wp.clamp(command, -MAX_RATE, MAX_RATE)
        drives.efforts[world, dof] = 0.0
    # forces and torques that a task applies for one step
    for number in range(layout.bodies.shape[0]):
        wrench = wp.spatial_vector()
        for i in range(6):
            wrench[i] = drives.forces[world, 6 * number + i]
            good = good and wp.isfinite(wrench[i])
            drives.forces[world, 6 * number + i] = 0.0
        data.xfrc_applied[world, layout.bodies[number]] = wrench
    # moved kinematic actors, and the state itself
    for i in range(data.mocap_pos.shape[1]):
        for k in range(3):
            good = good and is_within(data.mocap_pos[world, i][k], MAX_POSITION)
    good = good and is_stable(world, layout, data)
    results.blown[world] = not good
    if not good:
        for dof in range(drives.efforts.shape[1]):
            data.ctrl[world, dof] = 0.0
        for number in range(layout.bodies.shape[0]):
            data.xfrc_applied[world, layout.bodies[number]] = wp.spatial_vector()
        reset_world(world, layout, data)


@wp.func
def finite_or_zero(x: float) -> float:
    return wp.where(wp.isfinite(x), x, 0.0)


@wp.kernel(enable_backward=False)
def steady(layout: Layout, model: Model, data: Data, drives: Drives):
    """Damp joints as ``numerics.steadying``, one thread per world and DOF; each world has rows."""
    world, dof = wp.tid()
    mode = drives.mode[world, dof]
    if mode != MODE_POS and mode != MODE_VEL:
        return
    step, column = model.timestep[world % model.timestep.shape[0]], layout.dof_qvel[dof]
    error = finite_or_zero(drives.position_targets[world, dof] - data.qpos[world, layout.dof_qpos[dof]])
    velocity = data.qvel[world, column]
    target = finite_or_zero(drives.velocity_targets[world, dof])
    stiffness, damping = wp.where(mode == MODE_POS, drives.stiffness[world, dof], 0.0), drives.damping[world, dof]
    most, limit = drives.effort[world, dof], drives.max_velocity[world, dof]
    inertia = 1.0 / wp.clamp(model.dof_invweight0[world % model.dof_invweight0.shape[0], column], 1.0e-12, 1.0e9)
    extra = wp.float32(0.0)
    # the same names and order as in ``numerics.steadying``, which has the reasons
    pulled, reach, firm = stiffness * error, wp.abs(error) / step, damping + step * stiffness
    wanted = pulled + damping * target
    size, push = wp.abs(pulled), wanted - damping * velocity
    pull = wp.min(size, most)
    spring = (velocity + step * wanted / inertia) / (1.0 + step * firm / inertia)
    # a drive that the clamp weakens now and not at the end of the step follows the implicit spring
    if wp.abs(push) > most and wp.abs(wanted - firm * spring) <= most:
        free = velocity + step * wp.clamp(push, -most, most) / inertia
        slowed = inertia / step * (wp.abs(free) / wp.max(wp.abs(spring), 1.0e-9) - 1.0)
        extra = wp.clamp(slowed, 0.0, firm)
    # a drive that alone would be much faster than the limit is slowed down
    speed = pull * step / inertia
    if size <= most:
        speed = wp.min(speed, reach)
    if mode == MODE_POS and speed > OVERPOWERED * limit:
        extra = wp.max(extra, pull / wp.max(wp.min(limit / BRAKE, reach), 1.0e-9))
    model.dof_damping[world, column] = extra


@wp.kernel(enable_backward=False)
def damp_roots(layout: Layout, model: Model, data: Data):
    """Damp the velocities of free roots as the CPU engine does, one thread per world and actor."""
    world, actor = wp.tid()
    step = model.timestep[world % model.timestep.shape[0]]
    linear = wp.min(layout.root_damping[actor, 0] * step, 1.0)
    angular = wp.min(layout.root_damping[actor, 1] * step, 1.0)
    if layout.places[actor, FIXED] != 0 or (linear == 0.0 and angular == 0.0):
        return
    at, turn = layout.places[actor, QVEL], layout.places[actor, QPOS] + 3
    quat = wp.vec4(
        data.qpos[world, turn], data.qpos[world, turn + 1], data.qpos[world, turn + 2], data.qpos[world, turn + 3]
    )
    spin = wp.vec3(data.qvel[world, at + 3], data.qvel[world, at + 4], data.qvel[world, at + 5])
    arm = model.body_ipos[world % model.body_ipos.shape[0], layout.places[actor, ROOT]]
    moved = (angular - linear) * rotate(quat, wp.cross(spin, arm))  # qvel has the velocity of the root's origin
    for i in range(3):
        data.qvel[world, at + i] = (1.0 - linear) * data.qvel[world, at + i] + moved[i]
        data.qvel[world, at + 3 + i] = (1.0 - angular) * data.qvel[world, at + 3 + i]


@wp.func
def arm_of(body: int, world: int, model: Model, data: Data) -> wp.vec3:
    """Return a body's centre of mass from that of its tree, where MuJoCo has ``cvel`` and ``cdof``."""
    return data.xipos[world, body] - data.subtree_com[world, model.body_rootid[body]]


@wp.kernel(enable_backward=False)
def damp_links(layout: Layout, model: Model, data: Data, loads: wp.array2d[wp.spatial_vector]):
    """Apply the CPU engine's ``_link_damping_forces`` in addition to ``loads``, one thread per world and body."""
    world, number = wp.tid()
    body, step = layout.bodies[number], model.timestep[world % model.timestep.shape[0]]
    linear = wp.min(layout.link_damping[number, 0], 1.0 / step)
    angular = wp.min(layout.link_damping[number, 1], 1.0 / step)
    if linear == 0.0 and angular == 0.0:
        return
    gravity = model.gravity[world % model.gravity.shape[0]]
    weight = (1.0 - model.body_gravcomp[world % model.body_gravcomp.shape[0], body]) * gravity
    velocity = velocity_at(data.cvel[world, body], arm_of(body, world, model, data))
    turn, spin = data.ximat[world, body], wp.spatial_top(data.cvel[world, body])
    moments = model.body_inertia[world % model.body_inertia.shape[0], body]
    momentum = wp.cw_mul(moments, wp.transpose(turn) * spin)
    force = -linear * model.body_mass[world % model.body_mass.shape[0], body] * (velocity + step * weight)
    data.xfrc_applied[world, body] = loads[world, body] + wp.spatial_vector(force, -angular * (turn * momentum))


@wp.kernel(enable_backward=False)
def limit_velocities(layout: Layout, model: Model, data: Data, drives: Drives):
    """Clamp the velocities of joints, and the linear and angular speed of free roots, one thread per world.

    Joints have moved with the velocities of the physics step, and move back.
    """
    world = wp.tid()
    for dof in range(layout.dof_qvel.shape[0]):
        at = layout.dof_qvel[dof]
        limit = drives.max_velocity[world % drives.max_velocity.shape[0], dof]
        speed = data.qvel[world, at]
        if wp.abs(speed) > limit:
            limited = wp.clamp(speed, -limit, limit)
            moved = model.timestep[world % model.timestep.shape[0]] * (speed - limited)
            data.qpos[world, layout.dof_qpos[dof]] = data.qpos[world, layout.dof_qpos[dof]] - moved
            data.qvel[world, at] = limited
    # the first three velocities of a free joint are linear, the others angular
    for actor in range(layout.places.shape[0]):
        if layout.places[actor, FIXED] == 0:
            for part in range(2):
                at = layout.places[actor, QVEL] + 3 * part
                speed = wp.length(wp.vec3(data.qvel[world, at], data.qvel[world, at + 1], data.qvel[world, at + 2]))
                limit = layout.root_limits[actor, part]
                if speed > limit:
                    for i in range(3):
                        data.qvel[world, at + i] = data.qvel[world, at + i] * (limit / speed)


@wp.kernel(enable_backward=False)
def finish(layout: Layout, data: Data, results: Results, dropping: int):
    """Reset and count worlds whose physics failed, and copy the drives' forces, one thread per world.

    An overflow is counted if a world's bits in ``overflow`` include one of ``dropping``.
    """
    world = wp.tid()
    bad = results.blown[world] or not is_stable(world, layout, data)
    for i in range(data.qacc.shape[1]):
        bad = bad or not is_within(data.qacc[world, i], MAX_RATE)
    results.blown[world] = bad
    # a failed world's contacts say nothing of its buffers
    if (data.overflow[world] & dropping) != 0 and not bad:
        wp.atomic_add(results.overflows, 0, 1)
        results.dropped[world] = True
    data.overflow[world] = 0
    for dof in range(results.dof_forces.shape[1]):
        results.dof_forces[world, dof] = data.qfrc_actuator[world, layout.dof_qvel[dof]]
    if bad:
        wp.atomic_add(results.blow_ups, 0, 1)
        reset_world(world, layout, data)
        for dof in range(results.dof_forces.shape[1]):
            results.dof_forces[world, dof] = 0.0
        for i in range(results.contacts.shape[1]):
            results.contacts[world, i] = 0.0


# outputs


@wp.kernel(enable_backward=False)
def read_bodies(layout: Layout, model: Model, data: Data, out: wp.array2d[wp.float32]):
    """Fill a body's 13 numbers, one thread per world and body."""
    world, row = wp.tid()
    body = layout.bodies[row]
    linear = velocity_at(data.cvel[world, body], arm_of(body, world, model, data))
    quat = as_vec4(data.xquat[world, body])
    angular = wp.spatial_top(data.cvel[world, body])
    set_state_row(world * layout.bodies.shape[0] + row, 0, data.xpos[world, body], quat, linear, angular, out)


@wp.kernel(enable_backward=False)
def read_accelerations(layout: Layout, model: Model, data: Data, results: Results):
    """Compute the accelerations of the sensors' bodies in the last substep: angular, linear of the centre of mass.

    It must run right after a substep, which has advanced ``qvel`` but not the quantities derived from it.
    """
    world, sensor = wp.tid()
    body = layout.sensor_bodies[sensor]
    h = model.timestep[world % model.timestep.shape[0]]
    # sum of what each joint up to the root adds; the velocity is that at the beginning of the substep
    total = wp.spatial_vector()
    link = body
    while link > 0:
        for k in range(model.body_dofnum[link]):
            dof = model.body_dofadr[link] + k
            acceleration = data.qacc[world, dof]
            velocity = data.qvel[world, dof] - h * acceleration
            total += data.cdof_dot[world, dof] * velocity + data.cdof[world, dof] * acceleration
        link = model.body_parentid[link]
    arm = arm_of(body, world, model, data)
    spin = wp.spatial_top(data.cvel[world, body])
    linear = velocity_at(total, arm) + wp.cross(spin, velocity_at(data.cvel[world, body], arm))
    results.accelerations[world, sensor] = wp.spatial_vector(wp.spatial_top(total), linear)


@wp.kernel(enable_backward=False)
def add_contact_wrenches(
    nacon: wp.array[wp.int32],
    worldid: wp.array[wp.int32],
    geom: wp.array[wp.vec2i],
    geom_bodyid: wp.array[wp.int32],
    pos: wp.array[wp.vec3],
    wrench: wp.array[wp.spatial_vector],
    layout: Layout,
    data: Data,
    results: Results,
):
    """Add each contact's force, and its torque about the centre of mass, to sensors of its bodies.

    It has one thread per contact, and must run right after a substep, as ``read_accelerations``.
    """
    contact = wp.tid()
    if contact >= nacon[0]:
        return
    world = worldid[contact]
    for side in range(2):
        body = geom_bodyid[geom[contact][side]]
        for sensor in range(layout.sensor_bodies.shape[0]):
            if layout.sensor_bodies[sensor] == body:
                arm = pos[contact] - data.xipos[world, body]
                wp.atomic_add(results.wrenches, world, sensor, wrench_on(side, wrench[contact], arm))


@wp.kernel(enable_backward=False)
def read_sensors(layout: Layout, model: Model, data: Data, results: Results):
    """Compute the force that a sensor reports and its torque about the sensor, in the sensor's or the world's frame."""
    world, sensor = wp.tid()
    body = layout.sensor_bodies[sensor]
    if results.blown[world]:
        for i in range(6):
            results.sensors[world, sensor, i] = 0.0
        return
    acceleration = results.accelerations[world, sensor]
    force = model.body_mass[world % model.body_mass.shape[0], body] * wp.spatial_bottom(acceleration)
    pose = as_vec4(data.xquat[world, body])
    axes = multiply(pose, as_vec4(model.body_iquat[world % model.body_iquat.shape[0], body]))  # principal axes
    moments = model.body_inertia[world % model.body_inertia.shape[0], body]
    spin = rotate(conjugate(axes), wp.spatial_top(data.cvel[world, body]))
    change = rotate(conjugate(axes), wp.spatial_top(acceleration))
    torque = rotate(axes, wp.cw_mul(moments, change) + wp.cross(spin, wp.cw_mul(moments, spin)))
    weights = layout.sensor_weights[sensor]
    if weights[1] != 0.0:
        force = weights[0] * force + weights[1] * wp.spatial_top(results.wrenches[world, sensor])
        torque = weights[0] * torque + weights[1] * wp.spatial_bottom(results.wrenches[world, sensor])
    origin = data.xpos[world, body] + rotate(pose, layout.sensor_pos[sensor])
    torque = torque + wp.cross(data.xipos[world, body] - origin, force)
    if not layout.sensor_in_world[sensor]:
        frame = conjugate(multiply(pose, layout.sensor_quat[sensor]))
        force = rotate(frame, force)
        torque = rotate(frame, torque)
    for i in range(3):
        results.sensors[world, sensor, i] = force[i]
        results.sensors[world, sensor, 3 + i] = torque[i]


@wp.kernel(enable_backward=False)
def read_joint_wrenches(
    layout: Layout, model: Model, data: Data, wrenches: wp.array2d[wp.spatial_vector], out: wp.array3d[wp.float32]
):
    """Fill force and torque at a body's origin, in its frame, from ``cfrc_int``, one thread per world and body.

    It must run right after a substep, as ``read_accelerations``.
    """
    world, row = wp.tid()
    body = layout.bodies[row]
    force = wp.spatial_bottom(wrenches[world, body])
    arm = data.xpos[world, body] - data.subtree_com[world, model.body_rootid[body]]
    torque = wp.spatial_top(wrenches[world, body]) - wp.cross(arm, force)
    turn = conjugate(as_vec4(data.xquat[world, body]))
    force = rotate(turn, force)
    torque = rotate(turn, torque)
    for i in range(3):
        out[world, row, i] = force[i]
        out[world, row, 3 + i] = torque[i]


@wp.kernel(enable_backward=False)
def read_jacobian(
    model: Model,
    data: Data,
    base: int,
    links: wp.array[wp.int32],
    columns: wp.array[wp.int32],
    moved: wp.array2d[wp.bool],
    out: wp.array4d[wp.float32],
):
    """Fill a link's column for a DOF, one thread per world, link and column; the first ``base`` are a free root's."""
    world, link, column = wp.tid()
    body = links[link]
    linear, spin = wp.vec3(), wp.vec3()
    if column < base:
        if column < 3:
            linear[column] = 1.0
        else:
            spin[column - 3] = 1.0
            linear = wp.cross(spin, data.xipos[world, body] - data.xipos[world, links[0]])
    elif moved[link, column - base]:
        axis = data.cdof[world, columns[column - base]]
        linear = velocity_at(axis, arm_of(body, world, model, data))
        spin = wp.spatial_top(axis)
    for i in range(3):
        out[world, link, i, column] = linear[i]
        out[world, link, 3 + i, column] = spin[i]


@wp.kernel(enable_backward=False)
def read_mass_matrix(
    model: Model, data: Data, columns: wp.array[wp.int32], addresses: wp.array2d[wp.int32], out: wp.array3d[wp.float32]
):
    """Fill an element from MuJoCo's packed matrix, without armature, one thread per world, row and column.

    Address -1 is 0.
    """
    world, row, column = wp.tid()
    address = addresses[row, column]
    value = wp.float32(0.0)
    if address >= 0:
        value = data.M[world, address]
    if row == column:
        value -= model.dof_armature[world % model.dof_armature.shape[0], columns[row]]
    out[world, row, column] = value
