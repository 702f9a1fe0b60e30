"""A world's bits with sorted constraint rows, whatever the places of its contacts."""

import numpy as np
import pytest
import torch

from envcoder_bench.compat import mujoco_warp_order
from envcoder_bench.core.torch_settings import is_deterministic, settings_kept, use_deterministic_algorithms
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.spec import RunSpec

pytest.importorskip("mujoco_warp")
wp = pytest.importorskip("warp")

ENVS = 3
KINDS = ("root_states", "dof_pos", "dof_vel", "dof_force", "contact_forces", "sensor_forces", "site_states")


@pytest.fixture(autouse=True)
def cublas_workspace(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # set with deterministic algorithms


def make_sim(task: str, shuffle: int | None):
    """A simulator whose contacts are shuffled after every collision detection, as by threads that race."""
    cfg = compose_config(task)
    cfg = cfg.model_copy(update={"sim": "mujoco_warp", "device": "cpu"})
    sim = build_task(RunSpec.of(cfg), ENVS).sim
    if shuffle is not None:
        rng = np.random.default_rng(shuffle)

        def permute(model, data):
            count = int(data.nacon.numpy()[0])
            order = rng.permutation(count)
            for x in vars(data.contact).values():
                if isinstance(x, wp.array) and x.shape[0] == data.naconmax:
                    x.numpy()[:count] = x.numpy()[:count][order]

        sim._model.callback.contactfilter = permute
    return sim


def play(sim, steps: int) -> list[torch.Tensor]:
    rng, states = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        sim.step(0.6 * torch.randn(sim.dof_pos.shape, generator=rng))
        states.append(torch.cat([getattr(sim, kind).flatten() for kind in KINDS]))
    return states


@pytest.mark.slow
def test_deterministic_simulation_is_bitwise_independent_of_contact_order() -> None:
    plain, shuffled = (play(make_sim("Anymal", seed), 8) for seed in (None, 1))
    assert any(not torch.equal(a, b) for a, b in zip(plain, shuffled))
    with settings_kept():
        use_deterministic_algorithms()
        ordered = [play(make_sim("Anymal", seed), 8) for seed in (None, 1)]
    assert not is_deterministic()
    for other in (plain, *ordered[1:]):  # on a CPU the threads' own order is the same
        assert all(torch.equal(a, b) for a, b in zip(ordered[0], other))


@pytest.mark.slow
def test_other_models_of_the_process_are_unchanged() -> None:
    before = play(make_sim("Cartpole", None), 5)
    with settings_kept():
        use_deterministic_algorithms()
        assert hasattr(make_sim("Cartpole", None), "_order")
    after = make_sim("Cartpole", None)
    assert not hasattr(after, "_order")
    assert all(torch.equal(a, b) for a, b in zip(before, play(after, 5)))


def test_other_solver_is_refused(monkeypatch) -> None:
    """Deterministic simulation was asked for: there is no fallback."""
    monkeypatch.setattr(mujoco_warp_order.solver, "_update_gradient", lambda model, data: None)
    with pytest.raises(ValueError, match=r"install mujoco-warp~=4\.0\.0 .*_update_gradient has the parameters model"):
        mujoco_warp_order.RowOrder(None, None)
