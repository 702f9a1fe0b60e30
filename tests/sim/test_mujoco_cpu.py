"""What is the CPU backend's own: threads, its rotation of angular velocities, silence about blow-ups."""

from __future__ import annotations

import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("MuJoCo needs Python 3.11", allow_module_level=True)

import mujoco
import numpy as np
import torch
from backends import ANYMAL, KD, KP, Backend, commands, stand, tensors
from mujoco.batch import SimulationError

from envcoder_bench.sim.mujoco_cpu import MujocoCpu, rotate
from envcoder_bench.sim.mujoco_model import load_robot

CPU = Backend("mujoco_cpu", "cpu", True)


def test_result_does_not_depend_on_the_number_of_threads() -> None:
    robot = load_robot(ANYMAL, 0.02, 4, KP, KD)
    sims = [MujocoCpu(robot, 16, num_threads=n) for n in (1, 2, 5)]
    for sim in sims:
        stand(sim)
        for command in commands(sim, steps=10):
            sim.step(command)
    for name, value in tensors(sims[0]).items():
        assert all(torch.equal(getattr(sim, name), value) for sim in sims[1:]), name


def test_position_mode_is_bitwise_the_same_beside_effort_mode() -> None:
    """Per-environment gains leave the position-driven ones alone."""
    plain, mixed = CPU.anymal(num_envs=4), CPU.anymal(num_envs=4)
    mixed.set_drive_mode(torch.tensor([False, True, False, True]))
    for sim in (plain, mixed):
        stand(sim)
        for command in commands(sim, steps=10):
            sim.step(command)
    for name, value in tensors(plain).items():
        assert torch.equal(getattr(mixed, name)[0::2], value[0::2]), name


def test_rewritten_robot_is_a_fresh_one_to_the_last_bit_of_float64() -> None:
    used, fresh = CPU.anymal(num_envs=2), CPU.anymal(num_envs=2)
    stand(used)
    for command in commands(used, steps=8):
        used.step(command)
    for sim in (used, fresh):
        sim.step(stand(sim, height=0.54))
    assert np.array_equal(used._qpos, fresh._qpos) and np.array_equal(used._qvel, fresh._qvel)


def test_rotation_against_a_hand_computed_turn() -> None:
    turn = np.array([[0.5**0.5, 0.0, 0.0, 0.5**0.5]])  # 90 degrees about z
    np.testing.assert_allclose(rotate(turn, np.array([[1.0, 2.0, 3.0]])), [[-2.0, 1.0, 3.0]], atol=1e-15)
    np.testing.assert_allclose(rotate(turn, np.array([[1.0, 2.0, 3.0]]), inverse=True), [[2.0, -1.0, 3.0]], atol=1e-15)


def test_rotation_against_mujoco() -> None:
    rng = np.random.default_rng(0)
    quat, vec = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    expected = np.zeros((50, 3))
    for i in range(50):
        mujoco.mju_rotVecQuat(expected[i], vec[i], quat[i] / np.linalg.norm(quat[i]))
    np.testing.assert_allclose(rotate(quat, vec), expected, atol=1e-14)
    np.testing.assert_allclose(rotate(quat, rotate(quat, vec), inverse=True), vec, atol=1e-14)
    np.testing.assert_array_equal(rotate(np.zeros((50, 4)), vec), vec)


def test_blow_ups_print_nothing_and_write_no_log(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    sim = CPU.anymal(num_envs=2)
    stance = stand(sim)
    for _ in range(3):
        sim.write(torch.tensor([True, False]), dof_vel=torch.full((2, 12), 1e20))
        sim.step(stance)
        assert sim.unstable.tolist() == [True, False]
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_error_raised_inside_mujoco_is_one_environments_blow_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sim, twin = CPU.anymal(num_envs=3), CPU.anymal(num_envs=3)
    step = sim._batch.step

    def failing_step(**arguments) -> None:
        step(**arguments)
        raise SimulationError(np.array([1]), "out of memory")

    monkeypatch.setattr(sim._batch, "step", failing_step)
    for s in (sim, twin):
        s.step(stand(s))
    assert sim.unstable.tolist() == [False, True, False]
    assert torch.equal(sim.dof_pos[0::2], twin.dof_pos[0::2]) and not sim.dof_pos[1].any()
