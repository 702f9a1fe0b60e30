"""The unseen tasks: drawn by a seed, fulfilling the contract of tasks, with feet above the ground."""

import re

import pytest
import torch

from envcoder_bench.score.unseen import draw_tasks
from envcoder_bench.sources import outside
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tools.task_check import check_task


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unseen")
    yield draw_tasks(folder, 11)
    for base in ("Ant", "Anymal", "CartpoleSwingup"):
        outside.unmount(f"Unseen{base}11")


def files(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*") if path.suffix != ".pyc"}


def test_a_seed_draws_the_same_tasks_and_another_one_others(tmp_path):
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    draw_tasks(first, 3), draw_tasks(again, 3), draw_tasks(other, 4)
    assert files(first) == files(again)
    models = [re.sub(r"Unseen\w+", "", text) for folder in (first, other) for text in files(folder).values()]
    assert len(set(models)) > len(models) * 0.6  # baselines are copies of the shipped ones


@pytest.mark.parametrize("index", range(3))
def test_a_drawn_task_fulfils_the_contract(drawn, index):
    check_task(drawn[index].address, "mujoco_cpu", "cpu", [])


@pytest.mark.parametrize("base", ["Ant", "Anymal"])
def test_episodes_begin_with_the_feet_above_the_ground(tmp_path, base):
    for seed in range(1, 6):
        (address,) = [t.address for t in draw_tasks(tmp_path, seed) if base in t.name and "Direction" not in t.name]
        spec = find_spec(address)
        try:
            task = spec.make(spec.config(), 4, "mujoco_cpu", "cpu") if hasattr(spec, "config") else None
        finally:
            outside.unmount(spec.name)
        if task is not None:
            assert torch.isfinite(task.state["dof_pos"]).all()
