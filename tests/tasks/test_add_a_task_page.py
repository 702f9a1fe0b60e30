"""docs/add_a_task.md is complete: its files make a task that passes the check and moves as it should."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from task_helpers import Functions, begin, whole_state

from envcoder_bench.compile.trace import trace
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import assemble
from envcoder_bench.tasks import check_task, outside, registry
from envcoder_bench.tools.describe import describe

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add_a_task.md"


@pytest.fixture
def files(tmp_path):
    """Write the page's files, and find their task for the time of a test."""
    found = {}
    for text in re.findall(r"```(?:xml|python|yaml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        path = re.search(r"[\w/]+\.\w+", text.splitlines()[0])
        assert path, f"the first line of a block names its file, not {text.splitlines()[0]}"
        file = tmp_path / path.group()
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        found[file.name] = file
    registry.get_spec(str(tmp_path / "pendulum"))
    yield found
    del registry._found["Pendulum"]
    outside.unmount("Pendulum")


@pytest.mark.parametrize("sim", ["mujoco_cpu", "mujoco_warp"])
def test_page_files_define_a_valid_task(files, sim):
    assert set(files) == {"pendulum.xml", "task.py", "task.yaml", "human.py", "unshaped.py"}
    if sim == "mujoco_cpu":
        check_task(files["task.py"].parent, sim, "cpu")
    cfg = yaml.safe_load(files["task.yaml"].read_text(encoding="utf-8"))
    task = registry.make_task(registry.get_spec("Pendulum"), cfg, 3, sim, "cpu")
    unshaped = Functions(registry.get_spec("Pendulum").baseline_path("unshaped"))
    task.set_drive_mode(torch.ones(3, dtype=torch.bool))
    torch.manual_seed(0)
    begin(task, unshaped)
    assert set(task.fields) == set(whole_state(task))
    assert task.fitness(task.state).max() < -0.99
    for name in ("human", "unshaped"):
        candidate = Functions(registry.get_spec("Pendulum").baseline_path(name)).candidate
        shaping = check(assemble(candidate, candidate), dict(task.state), task.constants, task)
        assert shaping.action_dim == 1 and shaping.effort
        assert not trace(shaping, dict(task.state), task.constants, task)[1]
    best = -1.0
    for _ in range(task.max_episode_length):  # push the way it swings: the simplest way up
        action = torch.sign(task.state["dof_vel"])
        task.step(unshaped("compute_torque", whole_state(task), action))
        best = max(best, task.fitness(task.state).max().item())
    assert best > 0.9 and not bool(task.unstable.any())
    assert "unshaped: Hanging, within 0.1 rad, at rest." in describe("Pendulum")


def test_motor_is_too_weak_to_lift_the_rod_directly(files):
    cfg = yaml.safe_load(files["task.yaml"].read_text(encoding="utf-8"))
    task = registry.make_task(registry.get_spec("Pendulum"), cfg, 1, "mujoco_cpu", "cpu")
    assert task.constants["max_torque"] < 1.0 * 9.81 * 0.25
    task.set_drive_mode(torch.ones(1, dtype=torch.bool))
    begin(task, Functions(registry.get_spec("Pendulum").baseline_path("unshaped")))
    for _ in range(100):
        task.step(task.constants["max_torque"].view(1, 1))
        assert task.fitness(task.state).item() < 0.9
