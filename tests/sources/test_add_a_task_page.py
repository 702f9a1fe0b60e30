"""docs/add_a_task.md is complete: its files make a task that passes the check and moves as it should."""

import pytest
import torch
import yaml
from task_helpers import Functions, begin, whole_state

from envcoder_bench.compile.trace import trace
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import assemble
from envcoder_bench.sources import registry
from envcoder_bench.tasks import check_task
from envcoder_bench.tools.describe import describe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forgotten")]


def made(folder, num_envs, sim="mujoco_cpu"):
    """The page's task, and its unshaped baseline."""
    spec = registry.find_spec(str(folder))
    cfg = yaml.safe_load((folder / "task.yaml").read_text(encoding="utf-8"))
    task = spec.make(cfg, num_envs, sim, "cpu")
    task.set_drive_mode(torch.ones(num_envs, dtype=torch.bool))
    return task, Functions(spec.baseline_path("unshaped"))


@pytest.mark.parametrize("sim", ["mujoco_cpu", "mujoco_warp"])
def test_page_files_define_a_valid_task(folder, sim):
    files = {file.name for file in folder.iterdir()}
    assert files == {"pendulum.xml", "task.py", "task.yaml", "human.py", "unshaped.py"}
    if sim == "mujoco_cpu":
        check_task(folder, sim, "cpu")
    task, unshaped = made(folder, 3, sim)
    torch.manual_seed(0)
    begin(task, unshaped)
    assert set(task.fields) == set(whole_state(task))
    assert task.fitness(task.state).max() < -0.99
    for name in ("human", "unshaped"):
        candidate = Functions(registry.find_spec("Pendulum").baseline_path(name)).candidate
        shaping = check(assemble(candidate, candidate), dict(task.state), task.constants, task)
        assert shaping.action_dim == 1 and shaping.effort
        assert not trace(shaping, dict(task.state), task.constants, task)[1]
    best = -1.0
    swings = sim == "mujoco_cpu"  # a step of MuJoCo Warp takes long on a CPU
    for _ in range(task.max_episode_length if swings else 10):  # push the way it swings: the simplest way up
        action = torch.sign(task.state["dof_vel"])
        task.step(unshaped("compute_torque", whole_state(task), action))
        best = max(best, task.fitness(task.state).max().item())
    assert best > (0.9 if swings else -1.0) and not bool(task.unstable.any())
    assert "unshaped: Hanging, within 0.1 rad, at rest." in describe("Pendulum")


def test_motor_is_too_weak_to_lift_the_rod_directly(folder):
    task, unshaped = made(folder, 1)
    assert task.constants["max_torque"] < 1.0 * 9.81 * 0.25
    begin(task, unshaped)
    for _ in range(100):
        task.step(task.constants["max_torque"].view(1, 1))
        assert task.fitness(task.state).item() < 0.9
