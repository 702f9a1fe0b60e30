"""Warp kernels that copy state between MuJoCo Warp's arrays and the state tensors, most with one thread per world."""
# Warp compiles these functions. They only look like Python, so that a type checker misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import warp as wp

from envcoder_bench.sim.mujoco_model import MAX_QPOS, MAX_QVEL
from mujoco_batches.physics.warp_contacts import contact_at, wrench_on
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

STATE_TENSORS = ("root_states", "dof_pos", "dof_vel", "object_states", "dof_force", "contact_forces", "sensor_forces")


@wp.struct
class Worlds:
    """The state of all worlds: MuJoCo's arrays, and torch's ``STATE_TENSORS``, with a row for each world.

    ``first_qpos`` and ``first_qvel`` are the addresses of the first DOF.
    """

    first_qpos: wp.int32
    first_qvel: wp.int32
    default_qpos: wp.array2d[wp.float32]
    qpos: wp.array2d[wp.float32]
    qvel: wp.array2d[wp.float32]
    qacc_warmstart: wp.array2d[wp.float32]
    root_states: wp.array2d[wp.float32]
    dof_pos: wp.array2d[wp.float32]
    dof_vel: wp.array2d[wp.float32]
    object_states: wp.array2d[wp.float32]
    dof_force: wp.array2d[wp.float32]
    contact_forces: wp.array2d[wp.float32]
    sensor_forces: wp.array2d[wp.float32]


@wp.func
def _read_free_body(
    env: int,
    at: int,
    qpos_at: int,
    qvel_at: int,
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    states: wp.array2d[wp.float32],
):
    """Copy a free joint's state to 13 numbers as in ``root_states``, starting at column ``at``."""
    quat = wp.vec4(qpos[env, qpos_at + 3], qpos[env, qpos_at + 4], qpos[env, qpos_at + 5], qpos[env, qpos_at + 6])
    position = wp.vec3(qpos[env, qpos_at], qpos[env, qpos_at + 1], qpos[env, qpos_at + 2])
    linear = wp.vec3(qvel[env, qvel_at], qvel[env, qvel_at + 1], qvel[env, qvel_at + 2])
    angular = wp.vec3(qvel[env, qvel_at + 3], qvel[env, qvel_at + 4], qvel[env, qvel_at + 5])
    set_state_row(env, at, position, quat, linear, rotate(quat, angular), states)


@wp.func
def _write_free_body(
    env: int,
    at: int,
    qpos_at: int,
    qvel_at: int,
    new: wp.array2d[wp.float32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    states: wp.array2d[wp.float32],
):
    """Write new numbers to a free joint's state, the reverse of ``_read_free_body``, and to ``states``."""
    for i in range(13):
        states[env, at + i] = new[env, at + i]
    quat = wp.vec4(new[env, at + 6], new[env, at + 3], new[env, at + 4], new[env, at + 5])
    spin = wp.vec3(new[env, at + 10], new[env, at + 11], new[env, at + 12])
    spin = rotate(conjugate(quat), spin)
    for i in range(3):
        qpos[env, qpos_at + i] = new[env, at + i]
        qvel[env, qvel_at + i] = new[env, at + 7 + i]
        qvel[env, qvel_at + 3 + i] = spin[i]
    for i in range(4):
        qpos[env, qpos_at + 3 + i] = quat[i]


@wp.func
def _free_body_within(env: int, at: int, states: wp.array2d[wp.float32]) -> bool:
    """Return whether 13 numbers as in ``root_states``, starting at column ``at``, are within the limits."""
    within = wp.bool(True)
    for i in range(7):
        within = within and is_within(states[env, at + i], MAX_QPOS)
    for i in range(7, 13):
        within = within and is_within(states[env, at + i], MAX_QVEL)
    return within


@wp.func
def _read_motion(env: int, worlds: Worlds):
    """Copy a world's positions and velocities to the tensors."""
    if worlds.first_qpos == 7:
        _read_free_body(env, 0, 0, 0, worlds.qpos, worlds.qvel, worlds.root_states)
    for k in range(worlds.object_states.shape[1] // 13):
        qpos_at = worlds.first_qpos + worlds.dof_pos.shape[1] + 7 * k
        qvel_at = worlds.first_qvel + worlds.dof_pos.shape[1] + 6 * k
        _read_free_body(env, 13 * k, qpos_at, qvel_at, worlds.qpos, worlds.qvel, worlds.object_states)
    for dof in range(worlds.dof_pos.shape[1]):
        worlds.dof_pos[env, dof] = worlds.qpos[env, worlds.first_qpos + dof]
        worlds.dof_vel[env, dof] = worlds.qvel[env, worlds.first_qvel + dof]


@wp.func
def _clear_forces(env: int, worlds: Worlds):
    """Zero the forces of the last step in the tensors."""
    for dof in range(worlds.dof_force.shape[1]):
        worlds.dof_force[env, dof] = 0.0
    for i in range(worlds.contact_forces.shape[1]):
        worlds.contact_forces[env, i] = 0.0
    for i in range(worlds.sensor_forces.shape[1]):
        worlds.sensor_forces[env, i] = 0.0


@wp.kernel(enable_backward=False)
def load_command(
    command: wp.array2d[wp.float32],
    actuated: wp.array[wp.int32],
    ctrl: wp.array2d[wp.float32],
    refused: wp.array[wp.bool],
    unstable: wp.array[wp.bool],
):
    """Load the actuators' commands; all are 0 if one is not finite or a written state was refused."""
    env = wp.tid()
    good = not refused[env]
    refused[env] = False
    for dof in range(command.shape[1]):
        good = good and wp.isfinite(command[env, dof])
    for actuator in range(ctrl.shape[1]):
        if good:
            ctrl[env, actuator] = command[env, actuated[actuator]]
        else:
            ctrl[env, actuator] = 0.0
    unstable[env] = not good


@wp.func
def _add_to_sensors(
    env: int,
    geoms: wp.vec2i,
    pos: wp.vec3,
    wrench: wp.spatial_vector,
    geom_bodyid: wp.array[wp.int32],
    sensor_of_body: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    sensor_forces: wp.array2d[wp.float32],
):
    """Add a contact's force, and its torque about the body's origin, to the sensors of its two bodies."""
    for side in range(2):
        body = geom_bodyid[geoms[side]]
        sensor = sensor_of_body[body]
        if sensor >= 0:
            on_body = wrench_on(side, wrench, pos - xpos[env, body])
            for i in range(6):
                wp.atomic_add(sensor_forces, env, 6 * sensor + i, on_body[i])


@wp.kernel(enable_backward=False)
def add_sensor_forces(
    nacon: wp.array[wp.int32],
    worldid: wp.array[wp.int32],
    geom: wp.array[wp.vec2i],
    pos: wp.array[wp.vec3],
    wrench: wp.array[wp.spatial_vector],
    geom_bodyid: wp.array[wp.int32],
    sensor_of_body: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    sensor_forces: wp.array2d[wp.float32],
):
    """Add each contact's force, and its torque about the body's origin, to the sensors of its two bodies."""
    contact = wp.tid()
    if contact < nacon[0]:
        env = worldid[contact]
        _add_to_sensors(
            env, geom[contact], pos[contact], wrench[contact], geom_bodyid, sensor_of_body, xpos, sensor_forces
        )


@wp.kernel(enable_backward=False)
def add_sensor_forces_in_order(
    nefc: wp.array[wp.int32],
    kind: wp.array2d[wp.int32],
    ident: wp.array2d[wp.int32],
    address: wp.array2d[wp.int32],
    geom: wp.array[wp.vec2i],
    pos: wp.array[wp.vec3],
    wrench: wp.array[wp.spatial_vector],
    geom_bodyid: wp.array[wp.int32],
    sensor_of_body: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    sensor_forces: wp.array2d[wp.float32],
):
    """As ``add_sensor_forces``, in the order of the rows, one thread per world."""
    env = wp.tid()
    for row in range(wp.min(nefc[env], kind.shape[1])):
        contact = contact_at(kind, ident, address, env, row)
        if contact >= 0:
            _add_to_sensors(
                env, geom[contact], pos[contact], wrench[contact], geom_bodyid, sensor_of_body, xpos, sensor_forces
            )


@wp.kernel(enable_backward=False)
def to_body_frame(sensor_bodies: wp.array[wp.int32], xquat: wp.array2d[wp.quat], sensor_forces: wp.array2d[wp.float32]):
    """Transform sensors' forces and torques from the world frame to the body frame, one thread per sensor."""
    env, sensor = wp.tid()
    inverse = conjugate(as_vec4(xquat[env, sensor_bodies[sensor]]))
    for part in range(2):
        k = 6 * sensor + 3 * part
        turned = rotate(inverse, wp.vec3(sensor_forces[env, k], sensor_forces[env, k + 1], sensor_forces[env, k + 2]))
        for i in range(3):
            sensor_forces[env, k + i] = turned[i]


@wp.kernel(enable_backward=False)
def publish(
    qfrc_actuator: wp.array2d[wp.float32],
    dropping: int,
    worlds: Worlds,
    overflow: wp.array[wp.int32],
    contact_overflows: wp.array[wp.int32],
    unstable: wp.array[wp.bool],
):
    """Reset unstable worlds to the default state, and copy every world's state to the tensors.

    An overflow is counted for a world if its new bits in ``overflow`` include one of ``dropping``.
    """
    env = wp.tid()
    # a world is unstable if it was refused before the step, or is beyond the limits after it
    bad = unstable[env]
    for i in range(worlds.qpos.shape[1]):
        if not is_within(worlds.qpos[env, i], MAX_QPOS):
            bad = wp.bool(True)
    for i in range(worlds.qvel.shape[1]):
        if not is_within(worlds.qvel[env, i], MAX_QVEL):
            bad = wp.bool(True)
    unstable[env] = bad
    # dropped contacts
    if (overflow[env] & dropping) != 0 and not bad:
        contact_overflows[env] = contact_overflows[env] + 1
    overflow[env] = 0
    if bad:
        reset_motion(env, worlds.default_qpos, worlds.qpos, worlds.qvel, worlds.qacc_warmstart)
    _read_motion(env, worlds)
    for dof in range(worlds.dof_force.shape[1]):
        worlds.dof_force[env, dof] = qfrc_actuator[env, worlds.first_qvel + dof]
    if bad:
        _clear_forces(env, worlds)


@wp.kernel(enable_backward=False)
def write(
    mask: wp.array[wp.bool],
    with_root: wp.bool,
    with_pos: wp.bool,
    with_vel: wp.bool,
    with_objects: wp.bool,
    new_root: wp.array2d[wp.float32],
    new_pos: wp.array2d[wp.float32],
    new_vel: wp.array2d[wp.float32],
    new_objects: wp.array2d[wp.float32],
    worlds: Worlds,
    refused: wp.array[wp.bool],
    unstable: wp.array[wp.bool],
):
    """Overwrite the state of the masked worlds, in MuJoCo's arrays and in the tensors; refuse unstable states."""
    env = wp.tid()
    if not mask[env]:
        return
    objects = worlds.object_states.shape[1] // 13
    # write only if all numbers are within the limits
    good = wp.bool(True)
    if with_root:
        good = good and _free_body_within(env, 0, new_root)
    if with_objects:
        for k in range(objects):
            good = good and _free_body_within(env, 13 * k, new_objects)
    for dof in range(worlds.dof_pos.shape[1]):
        if with_pos:
            good = good and is_within(new_pos[env, dof], MAX_QPOS)
        if with_vel:
            good = good and is_within(new_vel[env, dof], MAX_QVEL)

    if not good:
        refused[env] = True
        unstable[env] = True
        reset_motion(env, worlds.default_qpos, worlds.qpos, worlds.qvel, worlds.qacc_warmstart)
        _read_motion(env, worlds)
    else:
        if with_root:
            _write_free_body(env, 0, 0, 0, new_root, worlds.qpos, worlds.qvel, worlds.root_states)
        if with_objects:
            for k in range(objects):
                qpos_at = worlds.first_qpos + worlds.dof_pos.shape[1] + 7 * k
                qvel_at = worlds.first_qvel + worlds.dof_pos.shape[1] + 6 * k
                _write_free_body(
                    env, 13 * k, qpos_at, qvel_at, new_objects, worlds.qpos, worlds.qvel, worlds.object_states
                )
        for dof in range(worlds.dof_pos.shape[1]):
            if with_pos:
                worlds.dof_pos[env, dof] = new_pos[env, dof]
                worlds.qpos[env, worlds.first_qpos + dof] = new_pos[env, dof]
            if with_vel:
                worlds.dof_vel[env, dof] = new_vel[env, dof]
                worlds.qvel[env, worlds.first_qvel + dof] = new_vel[env, dof]

    # forget the steps before
    _clear_forces(env, worlds)
    for i in range(worlds.qacc_warmstart.shape[1]):
        worlds.qacc_warmstart[env, i] = 0.0


@wp.kernel(enable_backward=False)
def read_sites(
    mask: wp.array[wp.bool],
    bodies: wp.array[wp.int32],
    roots: wp.array[wp.int32],
    quats: wp.array[wp.quat],
    site_xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.quat],
    subtree_com: wp.array2d[wp.vec3],
    cvel: wp.array2d[wp.spatial_vector],
    states: wp.array2d[wp.float32],
):
    """Compute a site's pose and velocity, one thread per world and site."""
    env, site = wp.tid()
    if not mask[env]:
        return
    body = bodies[site]
    point = site_xpos[env, site]
    quat = multiply(as_vec4(xquat[env, body]), as_vec4(quats[site]))
    linear = velocity_at(cvel[env, body], point - subtree_com[env, roots[site]])
    row = env * bodies.shape[0] + site
    set_state_row(row, 0, point, quat, linear, wp.spatial_top(cvel[env, body]), states)


@wp.kernel(enable_backward=False)
def read_jacobian(
    mask: wp.array[wp.bool],
    site: int,
    root: int,
    first_qvel: int,
    moves: wp.array[wp.bool],
    inertia: wp.array2d[wp.int32],
    site_xpos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cdof: wp.array2d[wp.spatial_vector],
    packed: wp.array2d[wp.float32],
    jacobian: wp.array3d[wp.float32],
    mass_matrix: wp.array3d[wp.float32],
):
    """Compute a joint's column of the Jacobian and row of the mass matrix, one thread per world and joint."""
    env, dof = wp.tid()
    if not mask[env]:
        return
    if moves[dof]:
        axis = cdof[env, first_qvel + dof]
        linear = velocity_at(axis, site_xpos[env, site] - subtree_com[env, root])
        for i in range(3):
            jacobian[env, i, dof] = linear[i]
            jacobian[env, 3 + i, dof] = wp.spatial_top(axis)[i]
    for other in range(inertia.shape[1]):
        entry = inertia[dof, other]
        if entry >= 0:
            mass_matrix[env, dof, other] = packed[env, entry]
