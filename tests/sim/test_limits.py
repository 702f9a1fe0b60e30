"""States and commands beyond the limits are refused and flagged on every backend, without output."""

import numpy as np
import pytest
import torch
from backends import BACKENDS, Backend, both, commands, everywhere, stand, tensors

from envcoder_bench.sim import make_simulator
from envcoder_bench.sim.mujoco_model import MAX_QPOS, MAX_QVEL
from envcoder_bench.sources.registry import find_spec

FRANKA = find_spec("FrankaCubeStack").model_path


def franka(backend: Backend, num_envs: int = 4):
    return make_simulator(backend.name, FRANKA, num_envs, 0.0166, 2, backend.device)


def column(backend: Backend, like: torch.Tensor, at: tuple, value: float) -> torch.Tensor:
    """A copy of a state tensor with one number of each environment replaced."""
    new = like.clone()
    new[(slice(None), *at)] = value
    return new.to(backend.device)


REFUSED = [
    ("root_states", (2,), -2 * MAX_QPOS),
    ("root_states", (5,), torch.nan),
    ("root_states", (8,), 2 * MAX_QVEL),
    ("dof_pos", (3,), 1e6),
    ("dof_vel", (11,), -1.01 * MAX_QVEL),
    ("dof_vel", (1,), torch.nan),
]


@pytest.mark.slow
@both
@pytest.mark.parametrize("name, at, value", REFUSED)
def test_state_beyond_the_limits_is_refused_at_once(backend: Backend, name: str, at: tuple, value: float) -> None:
    sim, twin = backend.anymal(), backend.anymal()
    fresh = tensors(twin)
    for s in (sim, twin):
        stand(s)
        s.step(stand(s))
    refused, good = backend.tensor([False, False, True, False]), backend.tensor([True, True, False, True])
    written = backend.tensor([True, False, True, False])
    spin = torch.zeros_like(sim.root_states) + backend.tensor([0, 0, 0.7, 0.1, 0.2, 0.3, 0.9, *[0.3] * 6])
    state = {"root_states": spin, "dof_pos": sim.dof_pos + 0.1, "dof_vel": sim.dof_vel - 0.1}
    twin.write(written & good, **state)
    bad = column(backend, state[name], at, value)
    state[name] = torch.where(refused.unsqueeze(1), bad, state[name])
    sim.write(written, **state)

    assert sim.unstable.tolist() == [False, False, True, False]
    for key, x in tensors(sim).items():
        assert torch.equal(x[good], getattr(twin, key)[good]), key
        if key != "unstable":
            assert torch.equal(x[refused], fresh[key][refused]), key

    for command, flags in zip(commands(sim, steps=2), ([False, False, True, False], [False] * 4)):
        sim.step(command)
        twin.step(command)
        assert sim.unstable.tolist() == flags, "it counts as a blow-up of the step that follows, and of no other"
        for key, x in tensors(sim).items():
            backend.assert_same(x[good], getattr(twin, key)[good])
            if key != "unstable" and flags[2]:
                assert torch.equal(x[refused], fresh[key][refused]), key


@both
@pytest.mark.parametrize("at, value", [((0, 0), 2 * MAX_QPOS), ((1, 4), torch.nan), ((1, 9), -2 * MAX_QVEL)])
def test_object_state_beyond_the_limits_is_refused(backend: Backend, at: tuple, value: float) -> None:
    sim, fresh = franka(backend), franka(backend)
    sim.step(sim.dof_pos + 0.3)
    objects = torch.where(
        everywhere(sim).cumsum(0)[:, None, None] == 2, column(backend, sim.object_states, at, value), sim.object_states
    )
    sim.write(everywhere(sim), object_states=objects)
    assert sim.unstable.tolist() == [False, True, False, False]
    for key in ("dof_pos", "dof_vel", "object_states", "site_states", "jacobian", "mass_matrix"):
        backend.assert_same(getattr(sim, key)[1], getattr(fresh, key)[1])
    assert not torch.equal(sim.dof_pos[0], fresh.dof_pos[0]), "the robots of the others stay where they were"


def at_the_limits(sim, seed: int) -> dict:
    """Random states about the limits, many of them exactly on one or next to one."""
    random = np.random.default_rng(seed)

    def draw(shape: tuple, limit: float) -> torch.Tensor:
        limit = np.float32(limit)
        edges = np.array([0, limit, np.nextafter(limit, np.float32(np.inf)), np.nan, np.inf], dtype=np.float32)
        picks = random.choice(edges, size=shape, p=[0.8, 0.17, 0.01, 0.01, 0.01])
        return torch.from_numpy(picks * random.choice(np.float32([-1, 1]), size=shape)).to(sim.device)

    def bodies(shape: tuple) -> torch.Tensor:
        return torch.cat([draw((*shape[:-1], 7), MAX_QPOS), draw((*shape[:-1], 6), MAX_QVEL)], dim=-1)

    return {
        "root_states": bodies(tuple(sim.root_states.shape)),
        "dof_pos": draw(tuple(sim.dof_pos.shape), MAX_QPOS),
        "dof_vel": draw(tuple(sim.dof_vel.shape), MAX_QVEL),
        "object_states": bodies(tuple(sim.object_states.shape)),
    }


@pytest.mark.parametrize("other", BACKENDS[1:])
@pytest.mark.parametrize("make", ["anymal", "franka"])
def test_backends_refuse_the_same_states(other: Backend, make: str) -> None:
    def build(backend: Backend):
        return backend.anymal(64) if make == "anymal" else franka(backend, 64)

    sims = [build(Backend("mujoco_cpu", "cpu", True)), build(other)]
    for sim in sims:
        sim.write(everywhere(sim), **at_the_limits(sim, seed=0))
    cpu, warp = sims
    state = {name: x.cpu() for name, x in at_the_limits(cpu, seed=0).items()}
    if make == "franka":
        del state["root_states"]  # a fixed robot has none to write
    within = torch.ones(64, dtype=torch.bool)
    for name, x in state.items():
        limits = torch.full((x.shape[-1],), MAX_QVEL if name == "dof_vel" else MAX_QPOS)
        if x.shape[-1] == 13:
            limits[7:] = MAX_QVEL
        within &= (x.abs() <= limits).flatten(1).all(dim=1)
    assert 5 < within.sum() < 60, "the test needs both"
    assert torch.equal(cpu.unstable, ~within) and torch.equal(warp.unstable.cpu(), ~within)
    for name in ("dof_pos", "dof_vel", "object_states"):
        assert torch.equal(getattr(cpu, name), getattr(warp, name).cpu()), name
        if name in state:
            assert torch.equal(getattr(cpu, name)[within], state[name][within]), name


@both
def test_refusal_persists_until_the_next_step(backend: Backend) -> None:
    sim, other = backend.anymal(num_envs=2), backend.anymal(num_envs=2)
    stance = stand(sim)
    sim.write(backend.tensor([True, False]), dof_pos=stance + 1e6)
    sim.write(everywhere(sim), dof_vel=torch.ones_like(stance))
    assert sim.unstable.tolist() == [True, False] and sim.dof_vel.eq(1.0).all()
    other.set_state(sim.get_state())
    for s in (sim, other):
        s.step(stance)
        assert s.unstable.tolist() == [True, False]
        s.step(stance)
        assert s.unstable.tolist() == [False, False]


@both
@pytest.mark.parametrize("size", [1e9, 1e11, 3e38])
def test_huge_command_is_clipped_to_the_effort_limit(backend: Backend, size: float) -> None:
    sim = backend.anymal(num_envs=2)
    stand(sim, height=1.0)
    sim.set_drive_mode(backend.tensor([True, False]))
    sim.step(torch.full((2, 12), size, device=sim.device))
    assert sim.dof_force.tolist() == [[80.0] * 12] * 2 and not sim.unstable.any()


@both
def test_unstable_step_prints_nothing(backend: Backend, tmp_path, monkeypatch, capfd, recwarn) -> None:
    """Joints at 1,000 rad/s deep in the ground: within the limits before the step, beyond them after it."""
    monkeypatch.chdir(tmp_path)
    sim = backend.anymal(num_envs=3)
    stand(sim)
    capfd.readouterr()
    root, wild = sim.root_states.clone(), backend.tensor([False, True, False])
    root[:, 2] = -0.2
    sim.write(wild, root, sim.dof_pos, torch.full_like(sim.dof_vel, MAX_QVEL) * torch.tensor([1.0, -1.0] * 6).to(root))
    assert not sim.unstable.any()
    sim.step(torch.full_like(sim.dof_pos, 1e9))
    assert sim.unstable.tolist() == [False, True, False]
    assert capfd.readouterr() == ("", "") and not recwarn.list and list(tmp_path.iterdir()) == []
