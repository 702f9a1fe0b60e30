"""--fitness FILE: evaluations measure the user's fitness, and nothing else changes."""

import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers import (
    CARTPOLE_QUICK,
    FIVE_ACTIONS,
    assert_same_weights,
    results,
    run,
    stopped_when,
    weights,
    write_candidates,
)

from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.core.errors import UserError
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.results.logs import read_points
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.fitness import fitness_bounds, fitness_meaning, read_fitness
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import UNTRAINED

pytestmark = pytest.mark.slow

CANDIDATES = {
    "gentle": "def compute_reward(pole_angle, actions):\n    return torch.cos(pole_angle) - actions[:, 0] ** 2\n",
    "five_actions": FIVE_ACTIONS,
}
OWN = '''"""Upright."""
import math
def compute_fitness(state_dict):
    upright = torch.cos(state_dict["pole_angle"]) >= math.cos(math.radians(12.0))
    return (upright & (torch.abs(state_dict["cart_pos"]) <= state_dict["reset_dist"])).float()
'''
EFFORT = '"""Minus the effort."""\ndef compute_fitness(actions):\n    return -1.0 - (actions**2).sum(dim=1)\n'
ONES = '"""Steps."""\ndef compute_fitness(pole_angle):\n    return torch.ones_like(pole_angle)\n'
WORDS = [
    *CARTPOLE_QUICK, "--num_envs_per_candidate", 8, "--learning_iterations", 2, "compile_shapers=false",
    "train.params.config.horizon_length=4",
]  # fmt: skip
N = 7


def command(folder, source, *words, candidates=CANDIDATES, expect=0):
    """Run the command with a fitness file."""
    (fitness,) = write_candidates(folder, {"fitness": source})
    files = write_candidates(folder / "files", candidates)
    return run(folder / "run", *WORDS, "--fitness", fitness, "--candidates", *files, *words, expect=expect)


def evaluation(source, candidates=CANDIDATES, overrides=(), task="Cartpole"):
    """An environment to evaluate candidates in, by a fitness file or, without one, the task's own fitness."""
    cfg = compose_config(task, [f"num_envs_per_candidate={N}", *overrides])
    cfg = cfg.model_copy(update={"sim": "mujoco_cpu", "device": "cpu"})
    sources = [CandidateSource(name, f"{name}.py", text) for name, text in candidates.items()]
    fitness = None if source is None else CandidateSource("(fitness)", "fitness.py", source)
    groups, failed = prepare(RunSpec.of(cfg, sources, fitness))
    assert not failed
    assert not any("fitness" in group.shaping.functions for group in groups)  # training knows nothing of it
    shapings = [group.evaluation for group in groups]
    return build_env(RunSpec.of(cfg), shapings, [group.seed for group in groups], N)


def episodes(env, rounds=2):
    return run_episodes(env, lambda obs: torch.sin(obs[:, :1] * 50.0).expand_as(env.actions), rounds, first_step=0)


# what is measured


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_fitness_file_with_the_tasks_fitness_gives_equal_results(compiled):
    ours = evaluation(OWN, overrides=[f"compile_shapers={compiled}"])
    stage = ours.dispatch.stages["fitness"]
    assert [len(stage.traced), len(stage.calls)] == ([2, 0] if compiled == "true" else [0, 2])
    expected, found = episodes(evaluation(None)), episodes(ours)
    assert torch.equal(found.fitness, expected.fitness)
    assert torch.equal(found.length, expected.length)
    assert 0.0 < found.fitness.mean() < 1.0


def test_fitness_is_summed_over_the_episode_and_divided_by_the_full_length():
    env = evaluation(ONES)
    played = episodes(env)
    torch.testing.assert_close(played.fitness, played.length / env.full_episode)
    assert len(played.length.unique()) > 3


def test_fitness_receives_the_state_after_the_step_and_the_candidates_action():
    clock = (
        '"""C."""\ndef compute_fitness(progress_buf, actions):\n    return progress_buf + 1000.0 * actions.shape[1]\n'
    )
    env = evaluation(clock, overrides=["compile_shapers=false"])
    played = episodes(env, rounds=1)
    steps = played.length.double()
    widths = torch.tensor([[1.0], [5.0]])
    expected = (steps * (steps + 1) / 2 + 1000.0 * widths * steps) / env.full_episode
    torch.testing.assert_close(played.fitness.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_fitness_is_bitwise_independent_of_other_groups(compiled):
    source = '"""S."""\ndef compute_fitness(dof_pos, dof_vel):\n    return torch.tanh(dof_pos * dof_vel.exp()).sum(1)\n'
    overrides = [f"compile_shapers={compiled}"]
    alone = episodes(evaluation(source, {"gentle": CANDIDATES["gentle"]}, overrides))
    among = episodes(evaluation(source, {"other": CANDIDATES["five_actions"], **CANDIDATES}, overrides))
    assert torch.equal(alone.fitness[0], among.fitness[1])


def test_memory_of_the_fitness_is_separate_for_each_group(caplog):
    counts = """
'''Calls.'''
calls = []
def compute_fitness(pole_angle):
    calls.append(1)
    return torch.ones_like(pole_angle) * len(calls)
"""
    alone = episodes(evaluation(counts, {"gentle": CANDIDATES["gentle"]}))
    among = episodes(evaluation(counts))
    assert torch.equal(alone.fitness[0], among.fitness[0])
    told = caplog.text
    assert told.count("fitness.py:4: in compute_fitness: keeps values between calls, which --resume cannot") == 2
    assert told.count("fitness.py:4: in compute_fitness: may depend on what an earlier call has kept: it is not") == 2


# in a run


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return run(folder / "run", *WORDS, "--candidates", *write_candidates(folder / "files", CANDIDATES))


@pytest.fixture(scope="module")
def ranked_by_effort(tmp_path_factory):
    return command(tmp_path_factory.mktemp("effort"), EFFORT)


def test_fitness_file_changes_the_ranking_but_not_the_training(plain, ranked_by_effort):
    for name in ("human", "unshaped", *CANDIDATES):
        assert_same_weights(weights(plain, name), weights(ranked_by_effort, name))
    ours, theirs = results(ranked_by_effort), results(plain)
    assert set(ours["status"]) == {"ok"}
    assert max(ours["fitness"]) < 0.0 < min(theirs["fitness"])
    assert ours["episode_length"].to_dict() == theirs["episode_length"].to_dict()


def test_fitness_meaning_and_source_are_saved_with_the_run(ranked_by_effort, capsys):
    summary = json.loads((ranked_by_effort / "summary.json").read_text())
    assert summary["fitness_meaning"] == "Minus the effort."
    assert (ranked_by_effort / "fitness.py").read_text() == EFFORT
    assert main(["--resume", str(ranked_by_effort)]) == 0
    assert "fitness: Minus the effort." in capsys.readouterr().out
    final = {p.candidate: p.fitness for p in read_points(ranked_by_effort / "points.csv") if p.iteration == 2}
    measured = results(ranked_by_effort)["fitness"].drop(UNTRAINED).to_dict()
    assert final == pytest.approx(measured, rel=1e-6)


def test_resumed_run_uses_the_saved_fitness_file(tmp_path):
    words = ["checkpoint_minutes=0", "--learning_iterations", 4]
    through = command(tmp_path / "through", EFFORT, *words)
    (fitness,) = write_candidates(tmp_path, {"fitness": EFFORT})
    files = write_candidates(tmp_path / "files", CANDIDATES)
    output = tmp_path / "run"
    with stopped_when((output / "checkpoint.pth").exists):
        run(output, *WORDS, *words, "--fitness", fitness, "--candidates", *files)
    fitness.unlink()
    assert main(["--resume", str(output)]) == 0
    for name in ("results.csv", "curves.csv", "components.csv", "points.csv"):
        assert (output / name).read_text() == (through / name).read_text()


def test_run_without_its_fitness_file_is_damaged(ranked_by_effort, tmp_path, capsys):
    copy = tmp_path / "run"
    copy.mkdir()
    for name in ("config.yaml", "summary.json", "results.csv"):
        (copy / name).write_bytes((ranked_by_effort / name).read_bytes())
    for source in ranked_by_effort.glob("candidates/*/source.py"):
        home = copy / "candidates" / source.parent.name
        home.mkdir(parents=True)
        (home / "source.py").write_bytes(source.read_bytes())
    assert main(["--resume", str(copy)]) == 2
    assert re.search(r"the run is damaged: .*fitness\.py", capsys.readouterr().err)


# faults


PUSH = "ACTION_DIM = {}\ndef compute_torque(action, dof_pos):\n    return torch.ones_like(dof_pos) * {}\n"
TWO = {"still": PUSH.format(1, 0.0), "wild": PUSH.format(2, 400.0)}
THREE = {**TWO, "far": PUSH.format(3, 300.0)}
SHORT = ["evaluation.points=2", "evaluation.num_envs=3", "evaluation.final_episodes=3"]


def test_episode_without_a_finite_fitness_fails_its_candidate_alone(tmp_path):
    source = '"""One."""\ndef compute_fitness(cart_vel, actions, progress_buf):\n'
    source += "    first = torch.arange(cart_vel.shape[0], device=cart_vel.device) == 0\n"
    source += "    late = first & (progress_buf == 5)\n"
    source += "    bad = {2: float('nan'), 3: float('-inf')}.get(actions.shape[1] + ADDED, 0.0)\n"
    source += "    return torch.where(late & (bad != 0.0), bad, cart_vel.abs().clamp(max=1.0))\n"
    words = [*SHORT, "--no_baselines", "--seeds", 2]
    alone = command(tmp_path / "alone", source.replace("ADDED", "9"), *words, candidates=THREE)
    output = command(tmp_path, source.replace("ADDED", "0"), *words, candidates=THREE)
    rows = results(output)
    pd.testing.assert_frame_equal(rows.loc["still"], results(alone).loc["still"], check_dtype=False)
    ranked = {row["candidate"]: row for row in json.loads((output / "summary.json").read_text())["ranking"]}
    place, hint = f"{tmp_path / 'fitness.py'}:2: in compute_fitness", "check its logarithms, roots and divisions"
    for name, word in (("wild", "NaN"), ("far", "infinite")):
        assert list(rows.loc[name, "status"]) == ["failed"] * 2 and rows.loc[name, "fitness"].isna().all()
        for error in rows.loc[name, "error"]:
            assert error == f"{place}: fitness is {word} in 1 of 3 evaluation episodes; {hint}"
        assert ranked[name]["rank"] is None and ranked[name]["status"] == "failed"
    assert ranked["still"]["rank"] == 1


def test_fitness_that_is_nan_for_all_ends_with_the_code_of_a_failed_run(tmp_path, capfd):
    source = '"""N."""\ndef compute_fitness(pole_angle, progress_buf):\n'
    source += "    return torch.where(progress_buf == 3, math.nan, pole_angle)\n"
    output = command(tmp_path, source, *SHORT, candidates=TWO, expect=1)
    rows = results(output)
    assert set(rows["status"]) == {"failed"}
    assert all("fitness is NaN in 3 of 3 evaluation episodes" in error for error in rows["error"])
    assert "fitness is NaN for all candidates in the evaluation at iteration 1" in (output / "run.log").read_text()


def test_fitness_that_is_nan_for_a_baseline_leaves_the_candidates_ranked(tmp_path):
    source = '"""B."""\ndef compute_fitness(pole_angle, actions, progress_buf):\n'
    source += "    return torch.where((progress_buf == 3) & (actions.shape[1] == 1), math.nan, pole_angle)\n"
    output = command(tmp_path, source, *SHORT, candidates={"wild": TWO["wild"]})
    rows = results(output)
    failed = dict.fromkeys(("human", "unshaped", "untrained"), "failed")
    assert rows["status"].to_dict() == {**failed, "wild": "ok"}
    summary = json.loads((output / "summary.json").read_text())
    assert summary["best_candidate"] == "wild" and math.isfinite(rows.loc["wild", "fitness"])


def test_only_the_last_evaluation_decides(tmp_path):
    source = """
'''Early.'''
calls = 0
def compute_fitness(pole_angle):
    global calls
    calls += 1
    return torch.full_like(pole_angle, math.nan if calls == 5 else 1.0)
"""
    output = command(tmp_path, source, *SHORT, "--no_baselines", candidates=TWO)
    assert set(results(output)["status"]) == {"ok"}
    log = (output / "run.log").read_text()
    assert log.count("fitness is NaN for all candidates in the evaluation at iteration 1") == 1
    assert "a candidate with such an episode in its last evaluation fails" in log


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_fitness_of_the_step_that_ends_an_episode_does_not_count(tmp_path, compiled):
    source = '"""Room."""\ndef compute_fitness(pole_angle):\n    return torch.sqrt(math.pi / 2 - pole_angle.abs())\n'
    words = [*SHORT, "--no_baselines", f"compile_shapers={compiled}"]
    rows = results(command(tmp_path, source, *words, candidates=TWO))
    assert set(rows["status"]) == {"ok"}
    assert rows.loc["wild", "episode_length"] < 39  # the pole fell, where the root is NaN


def test_exception_in_fitness_is_reported_with_its_line(tmp_path):
    source = '"""R."""\ndef compute_fitness(progress_buf):\n    if bool((progress_buf > 3).any()):\n'
    source += "        raise RuntimeError('on purpose')\n    return progress_buf * 0.0\n"
    output = command(tmp_path, source, expect=1)
    for name in ("human", *CANDIDATES):
        error = results(output).loc[name, "error"]
        place = f"{tmp_path / 'fitness.py'}:4: in compute_fitness: "
        assert error == f"{place}raised RuntimeError: on purpose (step 3 of an evaluation)"


HEAD = '"""Speed."""\n'
BAD = [
    (None, "--fitness {file} does not exist (did you mean fitnes.py?)"),
    ("x = (\n", "--fitness {file}:1: syntax error: '(' was never closed"),
    ("raise ValueError('no')\n", "--fitness {file}:1: raised ValueError: no while the file was loaded"),
    (HEAD + "x = 1\n", "--fitness {file}: does not define compute_fitness"),
    (
        HEAD + "def compute_fitnes(pole_angle):\n    return pole_angle\n",
        "--fitness {file}: does not define compute_fitness; it has compute_fitnes (line 2) (did you mean",
    ),
    (
        "def compute_fitness(pole_angle):\n    return pole_angle\n",
        "--fitness {file}:1: in compute_fitness: needs a docstring; its first paragraph describes the measure",
    ),
    (
        HEAD + "def compute_fitness(state_dict):\n    x = 1\n    return state_dict['pole_angel']\n",
        "--fitness {file}:4: in compute_fitness: raised KeyError: state_dict has no key 'pole_angel' (did you",
    ),
    (
        ONES + "commands = {'twist': None}\n",
        "--fitness {file}:4: the dict commands is for manager-based tasks of mjlab and Isaac Lab",
    ),
]


@pytest.mark.parametrize(("source", "message"), BAD)
def test_bad_fitness_file_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, source, message):
    monkeypatch.chdir(tmp_path)
    write_candidates(tmp_path, {"fitnes": ONES, **({} if source is None else {"fitness": source})})
    files = write_candidates(tmp_path / "files", CANDIDATES)
    words = [*WORDS, "--fitness", tmp_path / "fitness.py", "--candidates", *files]
    assert main([str(word) for word in words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("eval-shapers: error: " + message.format(file=tmp_path / "fitness.py"))
    assert told.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_fitness_must_be_a_file(tmp_path, capsys):
    for words, message in (
        (["--fitness", str(tmp_path)], f"--fitness {tmp_path} is a folder: give a file"),
        (["fitness=3"], "fitness must be a file with compute_fitness, or null, got 3"),
    ):
        assert main(["--task", "Cartpole", *words]) == 2
        assert message in capsys.readouterr().err


# its bounds


@pytest.mark.parametrize("value", ["[1,0]", "[0]", "[0,1,2]", "[0,inf]", "[a,1]", "3", "[0,0]"])
def test_bounds_must_be_two_increasing_numbers(tmp_path, capsys, value):
    (tmp_path / "f.py").write_text(EFFORT)
    assert main(["--task", "Cartpole", "--fitness", str(tmp_path / "f.py"), f"fitness_bounds={value}", "--check"]) == 2
    assert "fitness_bounds must be two numbers, the least first, such as [0, 1], or null" in capsys.readouterr().err


def test_bounds_need_a_fitness_file():
    with pytest.raises(UserError, match="fitness_bounds are those of a --fitness file"):
        resolve("Cartpole", ["fitness_bounds=[0,1]"])


def test_bounds_are_those_of_the_file_or_of_the_task():
    assert fitness_bounds(find_spec("Cartpole"), compose_config("Cartpole", [])) == (0.0, 1.0)
    assert fitness_bounds(find_spec("Cartpole"), compose_config("Cartpole", ["fitness=f.py"])) == (-math.inf, math.inf)
    assert fitness_bounds(
        find_spec("Cartpole"), compose_config("Cartpole", ["fitness=f.py", "fitness_bounds=[-2,3.5]"])
    ) == (-2.0, 3.5)


# its meaning


def config(path=None):
    return compose_config("Cartpole", [] if path is None else [f"fitness={path}"])


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ('"""One line"""\n', "One line"),
        ("'''Over\ntwo  lines.\n\nNot this.'''\n", "Over two lines."),
        ("", "Of the function."),
    ],
)
def test_fitness_meaning_is_the_first_paragraph_of_the_docstring(tmp_path, text, meaning):
    path = tmp_path / "f.py"
    path.write_text(text + 'def compute_fitness(pole_angle):\n    """Of the function."""\n    return pole_angle\n')
    source = read_fitness(find_spec("Cartpole"), config(path))
    path.unlink()
    assert fitness_meaning(RunSpec.of(config(path), fitness=source)) == meaning
    with pytest.raises(UserError, match=r"f\.py does not exist"):
        read_fitness(find_spec("Cartpole"), config(path))


def test_task_fitness_is_the_default():
    assert read_fitness(find_spec("Cartpole"), config()) is None
    assert fitness_meaning(RunSpec.of(config())) == find_spec("Cartpole").fitness_meaning


def test_candidates_cannot_read_the_fitness():
    looks = "def compute_reward(state_dict):\n    assert not any('fitness' in key for key in state_dict)\n"
    looks += "    return state_dict['pole_angle'] * 0.0\n"
    env = evaluation(OWN, {"looks": looks})
    assert not any("fitness" in key for key in env.views[0])
    assert math.isfinite(episodes(env, rounds=1).fitness.mean())
    assert not Path("fitness.py").exists()
