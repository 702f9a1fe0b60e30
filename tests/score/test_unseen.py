"""The unseen tasks: drawn by a seed, fulfilling the contract of tasks, with feet above the ground."""

import re

import pytest
import torch

from envcoder_bench.core.yaml_files import read_yaml
from envcoder_bench.score.unseen import UNSEEN_TASKS, draw_task
from envcoder_bench.sources import outside
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tools.task_check import check_task


def draw_tasks(folder, seed):
    return [draw_task(folder, base, seed) for base in UNSEEN_TASKS]


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


@pytest.mark.usefixtures("short_check")
@pytest.mark.parametrize("index", range(3))
def test_a_drawn_task_fulfils_the_contract(drawn, index):
    check_task(drawn[index].address, "mujoco_cpu", "cpu", [])


@pytest.mark.parametrize("base", ["Ant", "Anymal"])
def test_episodes_begin_with_all_bodies_above_the_ground(tmp_path, base):
    for seed in (1, 2, 3):
        spec = find_spec(draw_task(tmp_path, base, seed).address)
        try:
            task = spec.make(read_yaml(spec.config), 1, "mujoco_cpu", "cpu")
            task.reset(torch.ones(1, dtype=torch.bool), task.default_state, {})
            task.step(task.default_state["dof_pos"] if base == "Anymal" else torch.zeros(1, task.num_dofs))
            assert task.state["contact_forces"].abs().max() == 0.0  # it falls for a step, and touches nothing
        finally:
            outside.unmount(spec.name)


def test_nothing_of_another_seed_or_another_hand_is_in_a_drawn_task(tmp_path):
    draw_task(tmp_path, "Direction", 51)
    (tmp_path / "UnseenDirection51_a.py").write_text("")
    (tmp_path / "UnseenDirection5_a.py").write_text("")
    task = draw_task(tmp_path, "Direction", 5)
    assert [file.name for file in task.references] == ["UnseenDirection5_fitness.py"]
    address = tmp_path / "UnseenCartpoleSwingup5"
    (address / "__pycache__").mkdir(parents=True)
    for name in ("__pycache__/task.cpython-311.pyc", "torch.py"):
        (address / name).write_text("")
    assert draw_task(tmp_path, "CartpoleSwingup", 5).address == str(address)
    assert not {"__pycache__", "torch.py"} & {file.name for file in address.iterdir()}


def test_unseen_tasks_train_as_those_that_they_are_made_of_and_a_direction_has_a_reference(drawn):
    sizes = {task.name[:-2]: dict(word.split("=") for word in task.overrides) for task in drawn}
    assert {size["num_envs_per_candidate"] for size in sizes.values()} == {"128", "256"} and len(sizes) == 4
    (reference,) = drawn[-1].references
    text, goal = reference.read_text(), drawn[-1].goal.read_text()
    assert "def compute_reward(root_states)" in text and text.replace("reward", "fitness") == goal.replace(
        "reward", "fitness"
    )
    assert not any(task.references for task in drawn[:-1])
