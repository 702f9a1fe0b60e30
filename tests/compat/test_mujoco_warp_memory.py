"""Arrays that a step does not touch take no memory, and the physics is bitwise the same without them."""

import pytest
import torch
import warp as wp

from envcoder_bench.compat import mujoco_warp_memory
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sim import mujoco_warp
from envcoder_bench.sim.mujoco_model import INTEGRATORS
from mujoco_batches.compat import warn_once

pytestmark = pytest.mark.slow
KINDS = ("root_states", "dof_pos", "dof_vel", "dof_force", "contact_forces", "sensor_forces", "site_states")


def make_sim(task: str, *settings: str):
    return build_task(RunSpec.of(compose_config(task, ["device=cpu", "sim=mujoco_warp", *settings])), 3).sim


def play(sim, steps: int = 2) -> torch.Tensor:
    rng, states = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        sim.step(0.6 * torch.randn(sim.dof_pos.shape, generator=rng))
        states += [getattr(sim, kind).flatten().clone() for kind in KINDS]
    return torch.cat(states)


CASES = [("Anymal", [f"task.sim.mujoco.integrator={name}"]) for name in INTEGRATORS]
CASES += [(task, []) for task in ("FrankaCubeStack", "Cartpole")]


@pytest.mark.parametrize(("task", "settings"), CASES)
def test_physics_is_bitwise_the_same_without_untouched_arrays(
    task: str, settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = make_sim(task, *settings)
    monkeypatch.setattr(mujoco_warp, "drop_untouched", lambda model, data: None)
    full = make_sim(task, *settings)
    assert lean.bytes_per_env < full.bytes_per_env
    assert torch.equal(play(lean), play(full))


def test_a_steps_allocations_are_part_of_an_environments_memory() -> None:
    """Much of FrankaCubeStack's: the search for contacts of its boxes has a buffer for each pair of them."""
    sims = [make_sim("FrankaCubeStack", f"task.sim.substeps={substeps}") for substeps in (2, 4)]
    assert 40_000 < sims[0].bytes_per_env == sims[1].bytes_per_env < 60_000
    assert make_sim("Anymal").bytes_per_env < 40_000
    for make in (wp.empty, wp.zeros_like):
        assert make.__module__.startswith("warp"), "it is as it was"


def test_room_for_every_pair_in_the_search_for_convex_shapes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lean, make_data = make_sim("AllegroHand"), mujoco_warp.mjw.make_data
    monkeypatch.setattr(
        mujoco_warp.mjw, "make_data", lambda *args, **sizes: make_data(*args, **{**sizes, "nccdmax": None})
    )
    full = make_sim("AllegroHand")
    assert lean.bytes_per_env < 0.5 * full.bytes_per_env
    assert torch.equal(play(lean), play(full))
    assert not lean.contact_overflows.any()


def test_all_arrays_are_kept_with_a_version_that_was_not_read(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    warn_once.cache_clear()
    lean = make_sim("Anymal")
    monkeypatch.setattr(mujoco_warp_memory, "_READ", "0.0.")
    full = make_sim("Anymal")
    assert 0.75 * full.bytes_per_env < lean.bytes_per_env < 0.85 * full.bytes_per_env
    assert "MuJoCo Warp's Data is not as expected (it is version 4.0.0)" in caplog.text
