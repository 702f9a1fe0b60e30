"""Warp kernels of what follows from a step: body states, contact forces, force sensors, Jacobians, mass matrices."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import warp as wp

from envcoder_bench.isaacgym.warp_kernels import inverse, turned


@wp.func
def product(a: wp.vec4, b: wp.vec4) -> wp.vec4:
    """Multiply quaternions wxyz."""
    u = wp.vec3(a[1], a[2], a[3])
    v = wp.vec3(b[1], b[2], b[3])
    w = a[0] * v + b[0] * u + wp.cross(u, v)
    return wp.vec4(a[0] * b[0] - wp.dot(u, v), w[0], w[1], w[2])


@wp.func
def wxyz(quat: wp.quat) -> wp.vec4:
    """MuJoCo Warp keeps quaternions in the order wxyz."""
    return wp.vec4(quat[0], quat[1], quat[2], quat[3])


@wp.kernel(enable_backward=False)
def add_contact_forces(
    nacon: wp.array[wp.int32],
    worldid: wp.array[wp.int32],
    geom: wp.array[wp.vec2i],
    geom_bodyid: wp.array[wp.int32],
    row_of_body: wp.array[wp.int32],
    wrench: wp.array[wp.spatial_vector],
    contacts: wp.array2d[wp.float32],
):
    """Add each contact's force to its two bodies: on the second geom's, and the opposite on the first's."""
    contact = wp.tid()
    if contact >= nacon[0]:
        return
    env = worldid[contact]
    force = wp.spatial_top(wrench[contact])
    for side in range(2):
        row = row_of_body[geom_bodyid[geom[contact][side]]]
        if row >= 0:  # the world has none
            for i in range(3):
                wp.atomic_add(contacts, env, 3 * row + i, (2.0 * float(side) - 1.0) * force[i])


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
    """Fill a body's 13 numbers: one thread for each world and body."""
    env, row = wp.tid()
    body = bodies[row]
    at = env * bodies.shape[0] + row
    spin = wp.spatial_top(cvel[env, body])
    arm = xipos[env, body] - subtree_com[env, body_rootid[body]]
    speed = wp.spatial_bottom(cvel[env, body]) + wp.cross(spin, arm)
    for i in range(3):
        out[at, i] = xpos[env, body][i]
        out[at, 3 + i] = xquat[env, body][1 + i]
        out[at, 7 + i] = speed[i]
        out[at, 10 + i] = spin[i]
    out[at, 6] = xquat[env, body][0]


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
    """Keep the sensors' bodies' accelerations in the last substep: angular, and linear of the centre of mass.

    To run right after a step, whose derived numbers are those of before; only ``qvel`` has advanced.
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
    speed = wp.spatial_bottom(cvel[env, body]) + wp.cross(spin, arm)
    change = wp.spatial_top(total)
    linear = wp.spatial_bottom(total) + wp.cross(change, arm) + wp.cross(spin, speed)
    accelerations[env, sensor] = wp.spatial_vector(change, linear)


@wp.kernel(enable_backward=False)
def publish_sensors(
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
    """Publish the net force on a sensor's body, and its torque about the sensor, in the sensor's frame."""
    env, sensor = wp.tid()
    body = sensor_bodies[sensor]
    if failed[env]:
        for i in range(6):
            out[env, sensor, i] = 0.0
        return
    acceleration = accelerations[env, sensor]
    force = body_mass[env % body_mass.shape[0], body] * wp.spatial_bottom(acceleration)
    pose = wxyz(xquat[env, body])
    axes = product(pose, wxyz(body_iquat[env % body_iquat.shape[0], body]))  # principal axes
    moments = body_inertia[env % body_inertia.shape[0], body]
    spin = turned(inverse(axes), wp.spatial_top(cvel[env, body]))
    change = turned(inverse(axes), wp.spatial_top(acceleration))
    torque = turned(axes, wp.cw_mul(moments, change) + wp.cross(spin, wp.cw_mul(moments, spin)))
    origin = xpos[env, body] + turned(pose, sensor_pos[sensor])
    torque = torque + wp.cross(xipos[env, body] - origin, force)
    frame = inverse(product(pose, sensor_quat[sensor]))
    force = turned(frame, force)
    torque = turned(frame, torque)
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
    """Fill a link's column of a DOF: one thread for each world, link and DOF."""
    env, link, dof = wp.tid()
    if not moved[link, dof]:
        for i in range(6):
            out[env, link, i, dof] = 0.0
        return
    body = links[link]
    axis = cdof[env, columns[dof]]
    spin = wp.spatial_top(axis)
    arm = xipos[env, body] - subtree_com[env, body_rootid[body]]
    linear = wp.spatial_bottom(axis) + wp.cross(spin, arm)
    for i in range(3):
        out[env, link, i, dof] = linear[i]
        out[env, link, 3 + i, dof] = spin[i]


@wp.kernel(enable_backward=False)
def read_mass_matrix(addresses: wp.array2d[wp.int32], packed: wp.array2d[wp.float32], out: wp.array3d[wp.float32]):
    env, row, column = wp.tid()
    address = addresses[row, column]
    if address >= 0:
        out[env, row, column] = packed[env, address]
    else:
        out[env, row, column] = 0.0
