"""Runs with the off-policy trainer: resumed and extended to the last bit, as with PPO."""

import signal

import pytest
from helpers import (
    CANDIDATES,
    QUICK,
    assert_same_policies,
    assert_same_tables,
    fork_process,
    refused,
    run,
    stop_at,
    write_candidates,
)

from envcoder_bench.cli.eval_shapers import main

pytestmark = pytest.mark.slow

FILES = {name: CANDIDATES[name] for name in ("breaks_midway", "wide")}
KEYS = (
    "num_warmup_steps=48", "batch_size=16", "env_steps_per_update=48", "replay_buffer_size=300", "horizon_length=6",
)  # fmt: skip
WORDS = [
    *QUICK, "--task", "Cartpole", "task.env.episodeLength=40", "--trainer", "sac_small",
    "--num_envs_per_candidate", 8, "checkpoint_minutes=0", "--no_baselines", "compile_shapers=false",
    *(f"train.params.config.{key}" for key in KEYS),
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    paths = write_candidates(tmp_path_factory.mktemp("files"), FILES)
    return ["--candidates", *paths]


@pytest.fixture(scope="module")
def straight(files, tmp_path_factory):
    return run(tmp_path_factory.mktemp("straight") / "run", *WORDS, *files, "--learning_iterations", 10)


def test_a_killed_run_resumes_to_the_uninterrupted_result(straight, files, tmp_path):
    words = [*WORDS, *files, "--learning_iterations", 10]
    curves = tmp_path / "run" / "curves.csv"
    reached = lambda: curves.exists() and b"\n5," in curves.read_bytes()  # noqa: E731
    assert stop_at(fork_process(words, tmp_path / "run"), reached, signal.SIGKILL)[0] == -signal.SIGKILL
    assert main(["--resume", str(tmp_path / "run")]) == 0
    assert_same_tables(tmp_path / "run", straight)
    assert_same_policies(tmp_path / "run", straight, 2)


def test_a_longer_run_goes_on_from_the_state_at_the_end(straight, files, tmp_path):
    output = run(tmp_path / "run", *WORDS, *files, "--learning_iterations", 6)
    assert main(["--extend", str(output), "--learning_iterations", "10"]) == 0
    assert_same_policies(output, straight, 2)
    assert "actions are within ±1 (train.params.config.action_bound)" in (output / "run.log").read_text()


def test_a_ring_that_does_not_hold_the_steps_of_a_sample_is_refused(files, tmp_path, capsys):
    words = [*WORDS, *files, "--output_dir", tmp_path / "run", "train.params.config.replay_buffer_size=20"]
    error = refused(main, words, capsys)
    assert "train.params.config.replay_buffer_size: 20 must be at least 40" in error
    assert not (tmp_path / "run").exists()
