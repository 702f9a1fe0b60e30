"""Overrides of an Isaac Gym task's config reach what the commands learn of its state."""

from pathlib import Path

import pytest

import envcoder_bench.isaacgym.api.gymapi  # noqa: F401  MuJoCo starts a process where it is first imported
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.run_task import build_task
from envcoder_bench.tasks.registry import get_spec
from envcoder_bench.tools.task_probe import TaskProbe

FOLDER = Path(__file__).parent / "isaac_task"
SETTINGS = ("num_envs_per_candidate=4", "compile_shapers=false", "device=cpu", "sim=mujoco_cpu")


@pytest.fixture
def task(tmp_path):
    """A pendulum without the ball that its YAML can add."""
    own = (FOLDER / "pendulum.yaml").read_text().replace("maxEffort: 5.0", "maxEffort: 5.0\n  ball: false")
    (tmp_path / "plain.yaml").write_text(own)
    return f"{FOLDER}/pendulum.py:Rod@{tmp_path}/plain.yaml"


def test_describe_lists_the_state_that_overrides_add(task, capsys):
    assert main(["--task", task, "--describe"]) == 0
    assert "ball_state" not in capsys.readouterr().out
    assert main(["--task", task, "--describe", "task.env.ball=true", "task.env.maxEffort=7.5"]) == 0
    told = capsys.readouterr().out
    assert "ball_state" in told and "= 7.5" in told
    assert main(["--task", task, "--describe"]) == 0  # in the same process
    told = capsys.readouterr().out
    assert "ball_state" not in told and "= 5" in told


def test_check_binds_candidates_to_the_state_that_overrides_add(task, tmp_path, capsys):
    (tmp_path / "high.py").write_text("def compute_reward(ball_state):\n    return ball_state[:, 2]\n")
    (tmp_path / "fitness.py").write_text('"""Height"""\ndef compute_fitness(dof_pos):\n    return dof_pos[:, 0]\n')
    words = ["--task", task, "--check", "--candidates", str(tmp_path / "high.py")]
    words += ["--fitness", str(tmp_path / "fitness.py"), *SETTINGS]
    assert main(words) == 1
    assert "ball_state" in capsys.readouterr().out  # named as unknown
    assert main([*words, "task.env.ball=true"]) == 0


def test_override_can_repair_a_config_that_the_task_refuses(task, tmp_path, capsys):
    file = tmp_path / "plain.yaml"
    file.write_text(file.read_text().replace("pendulum.urdf", "absent.urdf"))
    assert main(["--task", task, "--describe"]) == 2
    assert "absent.urdf" in capsys.readouterr().err
    other = task.replace("plain", "other")
    (tmp_path / "other.yaml").write_text(file.read_text())
    assert main(["--task", other, "--describe", "task.env.asset=pendulum.urdf"]) == 0
    assert "last_angle" in capsys.readouterr().out


def test_override_that_the_task_refuses_is_reported_in_one_line(task, capsys):
    for more in (["--describe"], ["--check", *SETTINGS]):
        assert main(["--task", task, *more, "task.env.asset=absent.urdf"]) == 2
        told = capsys.readouterr().err
        assert "absent.urdf" in told and len(told.strip().splitlines()) == 1


def test_tasks_of_two_configs_have_their_own_states(task):
    plain, with_ball = (compose_config(task, [*SETTINGS, f"task.env.ball={own}"]) for own in ("false", "true"))
    get_spec(task, with_ball.task)
    assert "ball_state" not in build_task(plain, 2).state and "ball_state" in build_task(with_ball, 2).state
    assert get_spec(task).task_class is get_spec(task, with_ball.task).task_class  # the last one asked for


def test_task_probe_takes_overrides(task):
    probe = TaskProbe(task, "mujoco_cpu", "cpu", ["task.env.ball=true"])
    assert probe.spec.task_class.object_keys == ("ball_state",)
    assert tuple(probe.begun(2).state["ball_state"].shape) == (2, 13)
