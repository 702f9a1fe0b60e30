"""scripts/benchmark.py end to end, tiny on the CPU; its candidates are realistic and distinct."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import Forked

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import benchmark as script  # noqa: E402
from bench import records  # noqa: E402
from bench.candidates import make_candidates  # noqa: E402

from envcoder_bench.core.errors import Stopped, exit_on_user_error  # noqa: E402
from envcoder_bench.run.config import compose_config  # noqa: E402
from envcoder_bench.run.prepare.groups import prepare  # noqa: E402
from envcoder_bench.run.spec import RunSpec  # noqa: E402

QUICK = [
    "--sim", "mujoco_cpu", "--device", "cpu",
    "task.env.learn.episodeLength_s=0.4", "evaluation.num_envs=2", "evaluation.final_episodes=2", "evaluation.points=1",
]  # fmt: skip


@pytest.fixture
def benchmark(tmp_path, monkeypatch, capsys):
    """Runs the command line; returns its records and what it printed."""

    def run(*words):
        out = tmp_path / "records.jsonl"
        argv = [str(SCRIPTS / "benchmark.py"), *map(str, words), "--out", str(out), *QUICK]
        monkeypatch.setattr(sys, "argv", argv)
        threads = torch.get_num_threads()
        try:
            script.main()
        finally:
            torch.set_num_threads(threads)
        printed = capsys.readouterr()
        assert f"python scripts/benchmark.py {words[0]}" in printed.out and "--out" not in printed.out
        return records.read(out), printed.out + printed.err

    return run


@pytest.mark.slow
def test_scaling_measures_training_and_physics_and_a_failing_count_affects_no_other(benchmark, monkeypatch):
    """Each count in a process: a fork of this one."""

    def run(command, **_):
        assert command[0] == sys.executable
        return Forked(lambda: monkeypatch.setattr(sys, "argv", command[1:]) or script.main() or 0).waited()

    monkeypatch.setattr(subprocess, "run", run)
    (row,), printed = benchmark("scaling", "--candidates", 0, 2, "--envs", 4, "--iterations", 1, "--warmup", 1)
    assert row["kind"] == "scaling" and min(row["training"], row["physics"]) > 0 and row["startup_s"] > 0
    assert row["candidates"] == 2 and 0.1 < row["memory_gib"] < 8
    assert row["command"].startswith("python scripts/benchmark.py scaling --candidates 0 2 ")
    assert "0 candidates x 4 failed" in printed and "| 2 x 4 |" in printed


@pytest.mark.slow
def test_run_measures_a_complete_run(benchmark):
    made, _ = benchmark("run", "--candidates", 2, "--envs", 4, "--iterations", 3, "evaluation.points=3")
    (row,) = made
    assert row["failed"] == 0 and row["memory_gib"] > 0.1 and row["env_steps"] == 2 * 4 * 24 * 3
    assert 0 < row["checked_s"] <= row["first_iteration_s"] < row["last_iteration_s"] < row["seconds"]
    assert row["phase_s"].keys() == {"comparison", "evaluation", "results"} and min(row["phase_s"].values()) > 0.0
    assert sum(row["phase_s"].values()) < row["last_iteration_s"] - row["first_iteration_s"]


@pytest.mark.slow
def test_run_ends_when_the_page_is_written(benchmark, monkeypatch):
    from bench import startup

    written = []

    def conclude(result, videos, conclude=startup.conclude):
        code = conclude(result, videos)
        written.append(((result.folder / "report.html").is_file(), startup.process_age()))
        return code

    monkeypatch.setattr(startup, "conclude", conclude)
    monkeypatch.setenv("ENVCODER_BENCH_VIDEO", "0")
    (row,), printed = benchmark("run", "--candidates", 1, "--envs", 4, "--iterations", 1)
    ((there, at),) = written
    assert there and row["seconds"] >= at and row["videos"] == 0
    assert row["after_last_iteration_s"] == pytest.approx(row["seconds"] - row["last_iteration_s"])
    assert "report.html" not in printed  # what eval-shapers prints is not shown


@pytest.mark.slow
def test_startup_ends_at_the_first_iteration(benchmark):
    (row,), _ = benchmark("startup", "--candidates", 2, "--envs", 4)
    assert 0 < row["checked_s"] < row["first_iteration_s"] <= row["seconds"] and row["memory_gib"] > 0.1


@pytest.mark.parametrize("command", script.MEASUREMENTS)
def test_help_shows_the_defaults(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", command, "--help"])
    with pytest.raises(SystemExit, match="0"):
        script.main()
    assert "default:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run task.none=3", "benchmark: error: unknown key 'task.none'"),
        ("scaling --task Antt", "user_functions/Antt does not exist (did you mean Ant?)"),
    ],
)
def test_bad_input_ends_with_one_line(words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words.split(), "--candidates", "1"])
    with pytest.raises(SystemExit) as end:
        script.main()
    assert end.value.code == 2 and message in capsys.readouterr().err


def test_ctrl_c_ends_a_script_with_one_line(capsys):
    for stop, told in (
        (KeyboardInterrupt(), "stopped"),
        (Stopped("stopped in iteration 3", None), "stopped in iteration 3"),
    ):
        with pytest.raises(SystemExit) as end, exit_on_user_error("benchmark"):
            raise stop
        assert end.value.code == 130 and capsys.readouterr() == ("", f"benchmark: {told}\n")


def structure(source: str) -> str:
    """A candidate without its numbers: two files with one structure differ only in constants."""
    return re.sub(r"\b\d[\d.e-]*", "0", source)


@pytest.mark.slow
def test_1000_candidates_are_distinct():
    candidates = make_candidates(1000)
    bodies = {c.source.split("\n", 1)[1] for c in candidates}  # the first line is the candidate's number
    assert len(bodies) == 1000
    assert len({structure(body) for body in bodies}) >= 950  # without their constants
    assert len({c.name for c in candidates}) == 1000
    assert make_candidates(4) == candidates[:4]


@pytest.mark.slow
def test_candidates_pass_the_checks():
    torch.set_num_threads(1)
    cfg = compose_config("Anymal", ["num_envs_per_candidate=4", "sim=mujoco_cpu", "device=cpu"])
    groups, failed = prepare(RunSpec.of(cfg.model_copy(update={"compile_shapers": False}), make_candidates(36)[20:]))
    assert not failed and len(groups) == 16
    assert len({group.shaping.obs_dim for group in groups}) > 3
    assert len({group.shaping.components for group in groups}) > 10
    assert {group.shaping.effort for group in groups} == {True, False}
