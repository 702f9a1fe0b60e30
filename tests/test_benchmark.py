"""scripts/benchmark.py end to end: tiny measurements on the CPU through its command line."""

import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import benchmark as script  # noqa: E402
from bench import records  # noqa: E402

pytestmark = pytest.mark.slow

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


def test_scaling_measures_training_physics_and_dispatch(benchmark):
    made, printed = benchmark("scaling", "--candidates", 2, "--envs", 8, "--iterations", 1, "--warmup", 1, "--dispatch")
    row, timed = made
    assert (row["kind"], timed["kind"]) == ("scaling", "dispatch")
    assert min(row["training"], row["physics"]) > 0 and 0.1 < row["memory_gib"] < 8 and row["startup_s"] > 0
    kinds = {"action", "reward", "terminal", "initial_state", "goal", "observation"}
    assert set(timed["batched_us"]) == set(timed["loop_us"]) == kinds
    assert min([*timed["batched_us"].values(), *timed["loop_us"].values()]) > 0
    assert "| 2 x 8 | a loop over candidates |" in printed


def test_failing_count_does_not_affect_other_counts(benchmark):
    made, printed = benchmark("scaling", "--candidates", 0, 1, "--envs", 4, "--iterations", 1, "--warmup", 1)
    assert [row["candidates"] for row in made] == [1]
    assert made[0]["command"].startswith("python scripts/benchmark.py scaling --candidates 0 1 ")
    assert "0 candidates x 4 failed" in printed and "| 1 x 4 |" in printed


def test_physics_measures_each_number_of_environments(benchmark):
    made, printed = benchmark("physics", "--tasks", "Anymal", "--envs", 4, 8)
    assert [row["envs"] for row in made] == [4, 8] and min(row["physics"] for row in made) > 0
    assert {(row["task"], row["sim"], row["control_s"]) for row in made} == {("Anymal", "mujoco_cpu", 0.02)}
    assert "| Anymal | MuJoCo | implicitfast 10.0 ms | 8 |" in printed


def test_processes_are_measured_concurrently(benchmark):
    made, _ = benchmark("processes", "--processes", 2, "--envs", 4, "--seconds", 0.5, "--warmup", 1)
    (row,) = made
    assert len(row["each"]) == 2 and row["total"] == pytest.approx(sum(row["each"])) and min(row["each"]) > 0


def test_learner_measures_batched_and_loop(benchmark):
    made, printed = benchmark(
        "learner", "--candidates", 3, "--envs", 8, "--iterations", 1, "--warmup", 1, "--loop_candidates", 2
    )
    assert made[0]["batched_s"] > 0 and made[0]["loop_s"] > 0 and made[0]["loop_candidates"] == 2
    assert "2 candidates" in printed


def test_pairs_measure_two_tasks_in_turns(benchmark):
    made, printed = benchmark(
        "pairs", "--tasks", "Anymal", "Anymal", "--seeds", 2, "--envs", 8, "--iterations", 1, "--warmup", 0
    )
    (row,) = made
    assert row["ratio"] == pytest.approx(row["rates"][0] / row["rates"][1]) and row["ratio"] > 0
    assert "| Anymal, Anymal | 2 x 8 |" in printed


def test_run_measures_a_complete_run(benchmark):
    made, _ = benchmark("run", "--candidates", 2, "--envs", 4, "--iterations", 3, "evaluation.points=3")
    (row,) = made
    assert row["failed"] == 0 and row["memory_gib"] > 0.1 and row["env_steps"] == 2 * 4 * 24 * 3
    assert 0 < row["checked_s"] <= row["first_iteration_s"] < row["last_iteration_s"] < row["seconds"]
    assert row["phase_s"].keys() == {"comparison", "evaluation", "results"} and min(row["phase_s"].values()) > 0.0
    assert sum(row["phase_s"].values()) < row["last_iteration_s"] - row["first_iteration_s"]


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


def test_page_measures_the_end_of_a_run_without_training(benchmark):
    (row,), printed = benchmark("page", "--candidates", 3, "--iterations", 4, "--seeds", 2)
    assert row["part_s"].keys() == {"results", "tensorboard", "table", "page"} and min(row["part_s"].values()) > 0
    assert row["after_last_iteration_s"] == pytest.approx(sum(row["part_s"].values()))
    assert f", torch {torch.__version__}, " in row["libraries"] and "| 3 x 2 | 4 |" in printed


def test_startup_ends_at_the_first_iteration(benchmark):
    (row,), _ = benchmark("startup", "--candidates", 2, "--envs", 4)
    assert 0 < row["checked_s"] < row["first_iteration_s"] <= row["seconds"] and row["memory_gib"] > 0.1


@pytest.mark.parametrize("command", ["scaling", "processes", "dispatch", "report"])
def test_help_shows_the_defaults(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", command, "--help"])
    with pytest.raises(SystemExit, match="0"):
        script.main()
    assert "default:" in capsys.readouterr().out
