"""Warp kernels that compute outputs of a step: body states, force sensors, Jacobians, mass matrices."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import warp as wp

from envcoder_bench.sim.warp_functions import as_vec4, conjugate, multiply, rotate, set_state_row, velocity_at


@wp.kernel(enable_backward=False)
def read_bodies(
    bodies: wp.array[wp.int32],
    body_rootid: wp.array[wp.int32],
    xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.quat],
    xipos: wp.array2d[wp.vec3],
    cvel: wp.array2d[wp.spatial_vector],
    subtree_com: wp.array2d[wp.vec3],
    out: wp.array2d[wp.float32],
):
    """Fill a body's 13 numbers, one thread per world and body."""
    env, row = wp.tid()
    body = bodies[row]
    linear = velocity_at(cvel[env, body], xipos[env, body] - subtree_com[env, body_rootid[body]])
    quat = as_vec4(xquat[env, body])
    angular = wp.spatial_top(cvel[env, body])
    set_state_row(env * bodies.shape[0] + row, 0, xpos[env, body], quat, linear, angular, out)


@wp.kernel(enable_backward=False)
def read_accelerations(
    sensor_bodies: wp.array[wp.int32],
    timestep: wp.array[wp.float32],
    body_parentid: wp.array[wp.int32],
    body_rootid: wp.array[wp.int32],
    body_dofadr: wp.array[wp.int32],
    body_dofnum: wp.array[wp.int32],
    qvel: wp.array2d[wp.float32],
    qacc: wp.array2d[wp.float32],
    cdof: wp.array2d[wp.spatial_vector],
    cdof_dot: wp.array2d[wp.spatial_vector],
    cvel: wp.array2d[wp.spatial_vector],
    xipos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    accelerations: wp.array2d[wp.spatial_vector],
):
    """Compute the accelerations of the sensors' bodies in the last substep: angular, linear of the centre of mass.

    It must run right after a substep, which has advanced ``qvel`` but not the quantities derived from it.
    """
    env, sensor = wp.tid()
    body = sensor_bodies[sensor]
    h = timestep[env % timestep.shape[0]]
    total = wp.spatial_vector()
    link = body
    while link > 0:
        for k in range(body_dofnum[link]):
            dof = body_dofadr[link] + k
            total += cdof_dot[env, dof] * (qvel[env, dof] - h * qacc[env, dof]) + cdof[env, dof] * qacc[env, dof]
        link = body_parentid[link]
    arm = xipos[env, body] - subtree_com[env, body_rootid[body]]
    spin = wp.spatial_top(cvel[env, body])
    linear = velocity_at(total, arm) + wp.cross(spin, velocity_at(cvel[env, body], arm))
    accelerations[env, sensor] = wp.spatial_vector(wp.spatial_top(total), linear)


@wp.kernel(enable_backward=False)
def read_sensors(
    sensor_bodies: wp.array[wp.int32],
    sensor_pos: wp.array[wp.vec3],
    sensor_quat: wp.array[wp.vec4],
    failed: wp.array[wp.bool],
    accelerations: wp.array2d[wp.spatial_vector],
    body_mass: wp.array2d[wp.float32],
    body_inertia: wp.array2d[wp.vec3],
    body_iquat: wp.array2d[wp.quat],
    xpos: wp.array2d[wp.vec3],
    xquat: wp.array2d[wp.quat],
    xipos: wp.array2d[wp.vec3],
    cvel: wp.array2d[wp.spatial_vector],
    out: wp.array3d[wp.float32],
):
    """Compute the net force on a sensor's body and its torque about the sensor, in the sensor's frame."""
    env, sensor = wp.tid()
    body = sensor_bodies[sensor]
    if failed[env]:
        for i in range(6):
            out[env, sensor, i] = 0.0
        return
    acceleration = accelerations[env, sensor]
    force = body_mass[env % body_mass.shape[0], body] * wp.spatial_bottom(acceleration)
    pose = as_vec4(xquat[env, body])
    axes = multiply(pose, as_vec4(body_iquat[env % body_iquat.shape[0], body]))  # principal axes
    moments = body_inertia[env % body_inertia.shape[0], body]
    spin = rotate(conjugate(axes), wp.spatial_top(cvel[env, body]))
    change = rotate(conjugate(axes), wp.spatial_top(acceleration))
    torque = rotate(axes, wp.cw_mul(moments, change) + wp.cross(spin, wp.cw_mul(moments, spin)))
    origin = xpos[env, body] + rotate(pose, sensor_pos[sensor])
    torque = torque + wp.cross(xipos[env, body] - origin, force)
    frame = conjugate(multiply(pose, sensor_quat[sensor]))
    force = rotate(frame, force)
    torque = rotate(frame, torque)
    for i in range(3):
        out[env, sensor, i] = force[i]
        out[env, sensor, 3 + i] = torque[i]


@wp.kernel(enable_backward=False)
def read_jacobian(
    links: wp.array[wp.int32],
    columns: wp.array[wp.int32],
    moved: wp.array2d[wp.bool],
    body_rootid: wp.array[wp.int32],
    xipos: wp.array2d[wp.vec3],
    subtree_com: wp.array2d[wp.vec3],
    cdof: wp.array2d[wp.spatial_vector],
    out: wp.array4d[wp.float32],
):
    """Fill a link's column for a DOF, one thread per world, link and DOF."""
    env, link, dof = wp.tid()
    if not moved[link, dof]:
        for i in range(6):
            out[env, link, i, dof] = 0.0
        return
    body = links[link]
    axis = cdof[env, columns[dof]]
    linear = velocity_at(axis, xipos[env, body] - subtree_com[env, body_rootid[body]])
    for i in range(3):
        out[env, link, i, dof] = linear[i]
        out[env, link, 3 + i, dof] = wp.spatial_top(axis)[i]


@wp.kernel(enable_backward=False)
def read_mass_matrix(
    columns: wp.array[wp.int32],
    addresses: wp.array2d[wp.int32],
    packed: wp.array2d[wp.float32],
    armature: wp.array2d[wp.float32],
    out: wp.array3d[wp.float32],
):
    """Fill an element from MuJoCo's packed matrix, without armature, one thread per world, row and column.

    Address -1 is 0.
    """
    env, row, column = wp.tid()
    address = addresses[row, column]
    value = wp.float32(0.0)
    if address >= 0:
        value = packed[env, address]
    if row == column:
        value -= armature[env % armature.shape[0], columns[row]]
    out[env, row, column] = value
