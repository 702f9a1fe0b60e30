"""Warp kernels of the tensor interface's state: commands in, limits, blow-ups, and what setters and refreshes copy."""
# Warp compiles these functions; they are Python in their syntax alone, and a type checker for Python misreads them.
# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false, reportAssignmentType=false
# pyright: reportReturnType=false

import warp as wp

MAX_POSITION = wp.constant(1.0e4)  # m, rad; beyond is a blow-up
MAX_RATE = wp.constant(1.0e10)  # MuJoCo's own limit of velocities, accelerations and commands

# columns of an actor's row, as ``warp_places`` fills them
FIXED = wp.constant(0)
QPOS = wp.constant(1)
QVEL = wp.constant(2)
MOCAP = wp.constant(3)
ROOT = wp.constant(4)

MODE_POS = wp.constant(1)
MODE_VEL = wp.constant(2)


@wp.func
def turned(quat: wp.vec4, vec: wp.vec3) -> wp.vec3:
    """Rotate by a quaternion wxyz of any norm but zero, which does not rotate."""
    u = wp.vec3(quat[1], quat[2], quat[3])
    t = wp.cross(u, vec)
    return vec + 2.0 / wp.max(wp.dot(quat, quat), 1.0e-30) * (quat[0] * t + wp.cross(u, t))


@wp.func
def inverse(quat: wp.vec4) -> wp.vec4:
    return wp.vec4(-quat[0], quat[1], quat[2], quat[3])


@wp.func
def within(x: float, limit: float) -> bool:
    """Tell whether a number is no blow-up's: NaN is one."""
    return wp.abs(x) <= limit


@wp.func
def put_back(
    env: int,
    first_qpos: wp.array2d[wp.float32],
    first_mocap_pos: wp.array2d[wp.vec3],
    first_mocap_quat: wp.array2d[wp.quat],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    warmstart: wp.array2d[wp.float32],
    mocap_pos: wp.array2d[wp.vec3],
    mocap_quat: wp.array2d[wp.quat],
):
    """Put a world back to its first state."""
    for i in range(qpos.shape[1]):
        qpos[env, i] = first_qpos[env, i]
    for i in range(qvel.shape[1]):
        qvel[env, i] = 0.0
        warmstart[env, i] = 0.0
    for i in range(mocap_pos.shape[1]):
        mocap_pos[env, i] = first_mocap_pos[env, i]
        mocap_quat[env, i] = first_mocap_quat[env, i]


@wp.func
def state_within(env: int, qpos: wp.array2d[wp.float32], qvel: wp.array2d[wp.float32]) -> bool:
    good = wp.bool(True)
    for i in range(qpos.shape[1]):
        good = good and within(qpos[env, i], MAX_POSITION)
    for i in range(qvel.shape[1]):
        good = good and within(qvel[env, i], MAX_RATE)
    return good


@wp.kernel(enable_backward=False)
def load(
    mode: wp.array2d[wp.int32],
    stiffness: wp.array2d[wp.float32],
    damping: wp.array2d[wp.float32],
    position_targets: wp.array2d[wp.float32],
    velocity_targets: wp.array2d[wp.float32],
    bodies: wp.array[wp.int32],
    first_qpos: wp.array2d[wp.float32],
    first_mocap_pos: wp.array2d[wp.vec3],
    first_mocap_quat: wp.array2d[wp.quat],
    efforts: wp.array2d[wp.float32],
    forces: wp.array2d[wp.float32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    warmstart: wp.array2d[wp.float32],
    mocap_pos: wp.array2d[wp.vec3],
    mocap_quat: wp.array2d[wp.quat],
    ctrl: wp.array2d[wp.float32],
    xfrc: wp.array2d[wp.spatial_vector],
    failed: wp.array[wp.bool],
):
    """Hand over commands and forces, and zero those that act once. A world with a number that is none is put back."""
    env = wp.tid()
    good = wp.bool(True)
    for dof in range(efforts.shape[1]):
        row = env % mode.shape[0]
        kind = mode[row, dof]
        command = efforts[env, dof]
        if kind == MODE_POS:
            command = stiffness[row, dof] * position_targets[env, dof] + damping[row, dof] * velocity_targets[env, dof]
        elif kind == MODE_VEL:
            command = damping[row, dof] * velocity_targets[env, dof]
        good = good and wp.isfinite(command)
        ctrl[env, dof] = wp.clamp(command, -MAX_RATE, MAX_RATE)
        efforts[env, dof] = 0.0
    for body in range(bodies.shape[0]):
        wrench = wp.spatial_vector()
        for i in range(6):
            wrench[i] = forces[env, 6 * body + i]
            good = good and wp.isfinite(wrench[i])
            forces[env, 6 * body + i] = 0.0
        xfrc[env, bodies[body]] = wrench
    for i in range(mocap_pos.shape[1]):
        for k in range(3):
            good = good and within(mocap_pos[env, i][k], MAX_POSITION)
    good = good and state_within(env, qpos, qvel)
    failed[env] = not good
    if not good:
        for dof in range(efforts.shape[1]):
            ctrl[env, dof] = 0.0
        for body in range(bodies.shape[0]):
            xfrc[env, bodies[body]] = wp.spatial_vector()
        put_back(
            env,
            first_qpos,
            first_mocap_pos,
            first_mocap_quat,
            qpos,
            qvel,
            warmstart,
            mocap_pos,
            mocap_quat,
        )


@wp.kernel(enable_backward=False)
def limit_velocities(
    dof_qvel: wp.array[wp.int32],
    max_velocity: wp.array2d[wp.float32],
    places: wp.array2d[wp.int32],
    root_limits: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
):
    """Clamp the joints' velocities, and the linear and angular speed of free roots."""
    env = wp.tid()
    for dof in range(dof_qvel.shape[0]):
        at = dof_qvel[dof]
        limit = max_velocity[env % max_velocity.shape[0], dof]
        speed = qvel[env, at]
        if wp.abs(speed) > limit:
            qvel[env, at] = wp.clamp(speed, -limit, limit)
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
    first_qpos: wp.array2d[wp.float32],
    first_mocap_pos: wp.array2d[wp.vec3],
    first_mocap_quat: wp.array2d[wp.quat],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    warmstart: wp.array2d[wp.float32],
    mocap_pos: wp.array2d[wp.vec3],
    mocap_quat: wp.array2d[wp.quat],
    failed: wp.array[wp.bool],
    blow_ups: wp.array[wp.int32],
    overflow: wp.array[wp.int32],
    overflows: wp.array[wp.int32],
    dof_forces: wp.array2d[wp.float32],
    contacts: wp.array2d[wp.float32],
):
    """Put worlds that blew up back to their first state, count them, and publish the drives' forces.

    A world whose bits in ``overflow`` are some of ``dropping`` lacked room for a contact: it counts, too.
    """
    env = wp.tid()
    bad = failed[env]
    for i in range(qacc.shape[1]):
        if not within(qacc[env, i], MAX_RATE):
            bad = wp.bool(True)
    if not state_within(env, qpos, qvel):
        bad = wp.bool(True)
    failed[env] = bad
    if (overflow[env] & dropping) != 0 and not bad:
        wp.atomic_add(overflows, 0, 1)
    overflow[env] = 0
    if bad:
        wp.atomic_add(blow_ups, 0, 1)
        put_back(
            env,
            first_qpos,
            first_mocap_pos,
            first_mocap_quat,
            qpos,
            qvel,
            warmstart,
            mocap_pos,
            mocap_quat,
        )
        for i in range(contacts.shape[1]):
            contacts[env, i] = 0.0
    for dof in range(dof_forces.shape[1]):
        force = qfrc_actuator[env, dof_qvel[dof]]
        if bad:
            force = 0.0
        dof_forces[env, dof] = force


@wp.kernel(enable_backward=False)
def read_roots(
    places: wp.array2d[wp.int32],
    body_ipos: wp.array2d[wp.vec3],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    mocap_pos: wp.array2d[wp.vec3],
    mocap_quat: wp.array2d[wp.quat],
    out: wp.array2d[wp.float32],
):
    """Fill a root's 13 numbers: one thread for each world and actor."""
    env, actor = wp.tid()
    row = env * places.shape[0] + actor
    position = wp.vec3()
    quat = wp.vec4()
    speed = wp.vec3()
    spin = wp.vec3()
    if places[actor, FIXED] != 0:
        at = places[actor, MOCAP]
        position = mocap_pos[env, at]
        for i in range(4):
            quat[i] = mocap_quat[env, at][i]
    else:
        at = places[actor, QPOS]
        for i in range(3):
            position[i] = qpos[env, at + i]
        for i in range(4):
            quat[i] = qpos[env, at + 3 + i]
        first = places[actor, QVEL]
        spin = turned(quat, wp.vec3(qvel[env, first + 3], qvel[env, first + 4], qvel[env, first + 5]))
        arm = turned(quat, body_ipos[env % body_ipos.shape[0], places[actor, ROOT]])
        speed = wp.vec3(qvel[env, first], qvel[env, first + 1], qvel[env, first + 2]) + wp.cross(spin, arm)
    for i in range(3):
        out[row, i] = position[i]
        out[row, 3 + i] = quat[1 + i]
        out[row, 7 + i] = speed[i]
        out[row, 10 + i] = spin[i]
    out[row, 6] = quat[0]


@wp.kernel(enable_backward=False)
def write_roots(
    mask: wp.array2d[wp.bool],
    states: wp.array2d[wp.float32],
    places: wp.array2d[wp.int32],
    body_ipos: wp.array2d[wp.vec3],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    warmstart: wp.array2d[wp.float32],
    mocap_pos: wp.array2d[wp.vec3],
    mocap_quat: wp.array2d[wp.quat],
):
    """The reverse of ``read_roots`` for masked actors; a world that is written forgets its warm start."""
    env, actor = wp.tid()
    if not mask[env, actor]:
        return
    row = env * places.shape[0] + actor
    quat = wp.vec4(states[row, 6], states[row, 3], states[row, 4], states[row, 5])
    norm = wp.length(quat)
    quat = quat / norm if norm > 1.0e-9 else wp.vec4(1.0, 0.0, 0.0, 0.0)
    if places[actor, FIXED] != 0:
        at = places[actor, MOCAP]
        mocap_pos[env, at] = wp.vec3(states[row, 0], states[row, 1], states[row, 2])
        mocap_quat[env, at] = wp.quat(quat[0], quat[1], quat[2], quat[3])  # wxyz, as MuJoCo Warp stores them
    else:
        at = places[actor, QPOS]
        first = places[actor, QVEL]
        spin = wp.vec3(states[row, 10], states[row, 11], states[row, 12])
        speed = wp.vec3(states[row, 7], states[row, 8], states[row, 9])
        speed = speed - wp.cross(spin, turned(quat, body_ipos[env % body_ipos.shape[0], places[actor, ROOT]]))
        spin = turned(inverse(quat), spin)
        for i in range(3):
            qpos[env, at + i] = states[row, i]
            qvel[env, first + i] = speed[i]
            qvel[env, first + 3 + i] = spin[i]
        for i in range(4):
            qpos[env, at + 3 + i] = quat[i]
    for i in range(warmstart.shape[1]):
        warmstart[env, i] = 0.0


@wp.kernel(enable_backward=False)
def read_dofs(
    dof_qpos: wp.array[wp.int32],
    dof_qvel: wp.array[wp.int32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    out: wp.array2d[wp.float32],
):
    env, dof = wp.tid()
    row = env * dof_qpos.shape[0] + dof
    out[row, 0] = qpos[env, dof_qpos[dof]]
    out[row, 1] = qvel[env, dof_qvel[dof]]


@wp.kernel(enable_backward=False)
def write_dofs(
    mask: wp.array2d[wp.bool],
    states: wp.array2d[wp.float32],
    dof_actor: wp.array[wp.int32],
    dof_qpos: wp.array[wp.int32],
    dof_qvel: wp.array[wp.int32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    warmstart: wp.array2d[wp.float32],
):
    """Set the DOFs of masked actors; a world that is written forgets its warm start."""
    env = wp.tid()
    written = wp.bool(False)
    for actor in range(mask.shape[1]):
        written = written or mask[env, actor]
    if not written:
        return
    for dof in range(dof_qpos.shape[0]):
        if mask[env, dof_actor[dof]]:
            row = env * dof_qpos.shape[0] + dof
            qpos[env, dof_qpos[dof]] = states[row, 0]
            qvel[env, dof_qvel[dof]] = states[row, 1]
    for i in range(warmstart.shape[1]):
        warmstart[env, i] = 0.0
