import mujoco
import numpy as np

from mujoco_batches.physics.rotations import cross, quat_multiply, rotate, rotation_matrices


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_rotation_matches_mujoco():
    quat, vec = numbers(50, 4), numbers(50, 3, seed=1)
    expected = np.zeros((50, 3))
    for i in range(50):
        mujoco.mju_rotVecQuat(expected[i], vec[i], quat[i] / np.linalg.norm(quat[i]))
    np.testing.assert_allclose(rotate(quat, vec), expected, atol=1e-14)
    np.testing.assert_allclose(np.einsum("nij,nj->ni", rotation_matrices(quat), vec), expected, atol=1e-14)
    np.testing.assert_allclose(rotate(quat, rotate(quat, vec), inverse=True), vec, atol=1e-14)
    np.testing.assert_array_equal(rotate(np.zeros((50, 4)), vec), vec)


def test_products_match_mujoco_and_numpy():
    a, b = numbers(50, 4), numbers(50, 4, seed=1)
    expected = np.zeros((50, 4))
    for i in range(50):
        mujoco.mju_mulQuat(expected[i], a[i], b[i])
    np.testing.assert_allclose(quat_multiply(a, b), expected, atol=1e-14)
    np.testing.assert_array_equal(quat_multiply(a, b[:1]), quat_multiply(a, np.repeat(b[:1], 50, axis=0)))
    vec = numbers(50, 2, 1, 3)
    np.testing.assert_array_equal(cross(np.eye(3), vec), np.cross(np.eye(3), vec))
