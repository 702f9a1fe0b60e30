# type: ignore  # Warp compiles these functions; they are Python in their syntax alone
"""Warp functions that every MuJoCo Warp engine uses: quaternions, and rows of 13 numbers.

Quaternions are wxyz, as MuJoCo Warp stores them, except in a row of 13 numbers: position, quaternion xyzw, linear and
angular velocity, as in Isaac Gym's ``root_states``.
"""

import warp as wp


@wp.func
def rotate(quat: wp.vec4, vec: wp.vec3) -> wp.vec3:
    """Rotate by a quaternion of any norm; the zero quaternion does not rotate."""
    u = wp.vec3(quat[1], quat[2], quat[3])
    t = wp.cross(u, vec)
    return vec + 2.0 / wp.max(wp.dot(quat, quat), 1.0e-30) * (quat[0] * t + wp.cross(u, t))


@wp.func
def conjugate(quat: wp.vec4) -> wp.vec4:
    """Return the inverse rotation."""
    return wp.vec4(quat[0], -quat[1], -quat[2], -quat[3])


@wp.func
def multiply(a: wp.vec4, b: wp.vec4) -> wp.vec4:
    """Return the rotation ``b`` followed by ``a``."""
    u = wp.vec3(a[1], a[2], a[3])
    v = wp.vec3(b[1], b[2], b[3])
    w = a[0] * v + b[0] * u + wp.cross(u, v)
    return wp.vec4(a[0] * b[0] - wp.dot(u, v), w[0], w[1], w[2])


@wp.func
def as_vec4(quat: wp.quat) -> wp.vec4:
    """Return the components in their order of storage, wxyz; Warp's own operators would read them as xyzw."""
    return wp.vec4(quat[0], quat[1], quat[2], quat[3])


@wp.func
def velocity_at(velocity: wp.spatial_vector, arm: wp.vec3) -> wp.vec3:
    """Return the linear velocity of a point at ``arm`` from the origin of a spatial velocity (angular, linear)."""
    return wp.spatial_bottom(velocity) + wp.cross(wp.spatial_top(velocity), arm)


@wp.func
def is_within(x: float, limit: float) -> bool:
    """Return whether a number is within a limit; False for NaN."""
    return wp.abs(x) <= limit


@wp.func
def set_state_row(
    row: int,
    column: int,
    position: wp.vec3,
    quat: wp.vec4,
    linear: wp.vec3,
    angular: wp.vec3,
    states: wp.array2d[wp.float32],
):
    """Write 13 numbers, starting at ``column``."""
    for i in range(3):
        states[row, column + i] = position[i]
        states[row, column + 3 + i] = quat[1 + i]
        states[row, column + 7 + i] = linear[i]
        states[row, column + 10 + i] = angular[i]
    states[row, column + 6] = quat[0]


@wp.func
def reset_motion(
    env: int,
    first_qpos: wp.array2d[wp.float32],
    qpos: wp.array2d[wp.float32],
    qvel: wp.array2d[wp.float32],
    qacc_warmstart: wp.array2d[wp.float32],
):
    """Reset a world to its row of ``first_qpos``, or to the only row, at rest."""
    for i in range(qpos.shape[1]):
        qpos[env, i] = first_qpos[env % first_qpos.shape[0], i]
    for i in range(qvel.shape[1]):
        qvel[env, i] = 0.0
        qacc_warmstart[env, i] = 0.0
