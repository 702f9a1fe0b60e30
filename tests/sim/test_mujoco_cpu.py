"""The CPU backend: threads, rotation of angular velocities, solver, MuJoCo's warnings."""

from functools import partial

import mujoco
import numpy as np
import pytest
import torch
from backends import ANYMAL, KD, KP, Backend, commands, stand, tensors
from mujoco.batch import SimulationError

from envcoder_bench.sim.mujoco_cpu import MujocoCpu
from envcoder_bench.sim.mujoco_model import load_robot

CPU = Backend("mujoco_cpu", "cpu", True)


def test_result_is_independent_of_the_number_of_threads() -> None:
    robot = load_robot(ANYMAL, 0.02, 4, KP, KD)
    sims = [MujocoCpu(robot, 16, num_threads=n) for n in (1, 2, 5)]
    for sim in sims:
        stand(sim)
        for command in commands(sim, steps=10):
            sim.step(command)
    for name, value in tensors(sims[0]).items():
        assert all(torch.equal(getattr(sim, name), value) for sim in sims[1:]), name


def test_position_mode_is_bitwise_independent_of_effort_mode_environments() -> None:
    """Gains per environment do not change those of position-driven environments."""
    plain, mixed = CPU.anymal(num_envs=4), CPU.anymal(num_envs=4)
    mixed.set_drive_mode(torch.tensor([False, True, False, True]))
    for sim in (plain, mixed):
        stand(sim)
        for command in commands(sim, steps=10):
            sim.step(command)
    for name, value in tensors(plain).items():
        assert torch.equal(getattr(mixed, name)[0::2], value[0::2]), name


def test_mujoco_warnings_are_counted_instead_of_printed_and_logged(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, recwarn
) -> None:
    monkeypatch.chdir(tmp_path)
    sim = CPU.cartpole(num_envs=64, substeps=8)
    outer: list = []
    mujoco.set_mju_user_warning(outer.append)
    try:
        for _ in range(3):
            sim._qpos[:32] = np.random.default_rng(0).normal(size=(32, 2)) * 1e6  # past the limits of write
            sim.step(torch.zeros(64, 2))
            assert sim.unstable.tolist() == [True] * 32 + [False] * 32
        before = mujoco.get_mju_user_warning()
    finally:
        mujoco.set_mju_user_warning(None)
    assert list(sim.engine_warnings) == ["Linesearch objective is not convex"]
    assert sim.engine_warnings["Linesearch objective is not convex"] > 100
    assert outer == [] and before == outer.append, "a handler of the program's own is back afterwards"
    assert capfd.readouterr() == ("", "") and not recwarn.list
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [CPU.anymal, partial(CPU.cartpole, substeps=8), CPU.ant])
def test_environments_with_mujoco_warnings_are_unstable(make) -> None:
    """Unstable resets are counted per candidate and so show which candidate causes warnings."""
    sim, random = make(num_envs=64), torch.Generator().manual_seed(0)
    sim.set_drive_mode(torch.ones(64, dtype=torch.bool))
    warned, calm = np.zeros(64, dtype=int), 0
    for scale in (0.3, 3.0, 30.0, 300.0, 1e3):
        for _ in range(4):
            wild = (scale * torch.randn(2, 64, sim.num_dofs, generator=random)).clamp(-1e3, 1e3)
            sim.write(torch.ones(64, dtype=torch.bool), dof_pos=9.0 * wild[0], dof_vel=wild[1])
            before = sim._batch.warning[:, :, 1].sum(axis=1)
            sim.step(1e9 * wild[0])
            rose = sim._batch.warning[:, :, 1].sum(axis=1) > before
            assert sim.unstable[torch.from_numpy(rose)].all()
            warned += rose
            calm += int((~sim.unstable).sum())
    assert min(warned.sum(), calm) > 50, "the test needs both"


# A stem with many branches that touch each other, of 72 joints.
BUSH = (
    '<mujoco><option integrator="implicitfast" timestep="0.005" {option}/><worldbody><body name="stem">'
    "{branches}</body></worldbody></mujoco>"
)
BRANCH = '<body name="{0}" pos="{1} {2} .1"><joint name="{0}" axis="{3} 1 {4}"/><geom size=".04"/>{5}</body>'


@pytest.mark.parametrize("option", ["", 'jacobian="sparse"'])
def test_many_joints_match_a_dense_jacobian(tmp_path, option: str) -> None:
    """MuJoCo 4.0.0 computes other accelerations with its sparse Jacobian, the default from 60 joints on."""
    numbers = np.random.default_rng(0).uniform(-0.1, 0.1, size=(8, 9, 4)).round(3)

    def branch(name: str, row: np.ndarray, inner: str = "") -> str:
        return BRANCH.format(name, *row[:2], *(10 * row[2:]).round(2), inner)

    branches = ""
    for k, rows in enumerate(numbers):
        twigs = "".join(branch(f"twig{k}_{i}", row) for i, row in enumerate(rows[1:]))
        branches += branch(f"branch{k}", rows[0], twigs)
    path = tmp_path / "bush.xml"
    path.write_text(BUSH.format(option=option, branches=branches))
    sim = MujocoCpu(load_robot(path, 0.02, 4), 2)
    model = mujoco.MjModel.from_xml_path(str(path))
    assert model.nv == 72 and mujoco.mj_isSparse(model)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(model)
    for _ in range(3):
        sim.step(torch.zeros(2, 72))
        mujoco.mj_step(model, data, 4)
        want = torch.from_numpy(data.qvel).float().expand(2, 72)
        torch.testing.assert_close(sim.dof_vel, want, rtol=1e-5, atol=1e-5)
    assert data.ncon > 20 and sim.dof_vel.abs().max() > 0.5, "the test needs contacts and motion"


def test_mujoco_error_makes_only_its_environment_unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    sim, twin = CPU.anymal(num_envs=3), CPU.anymal(num_envs=3)
    step = sim._batch.step

    def failing_step(**arguments) -> None:
        step(**arguments)
        raise SimulationError(np.array([1]), "out of memory")

    monkeypatch.setattr(sim._batch, "step", failing_step)
    monkeypatch.setattr(sim._batch, "error", lambda env: f"out of memory in {env}")
    for s in (sim, twin):
        s.step(stand(s))
    assert sim.unstable.tolist() == [False, True, False]
    assert torch.equal(sim.dof_pos[0::2], twin.dof_pos[0::2]) and not sim.dof_pos[1].any()
    assert sim.engine_warnings == {"out of memory in 1": 1}
