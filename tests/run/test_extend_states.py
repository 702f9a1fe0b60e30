"""Which states of a complete run an extension by iterations continues from."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.results.rows import FAILED_AT_LOAD, OK, Result
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.extend import _refuse_left_out, _states
from envcoder_bench.run.folder.checkpoint import GroupKey, pack_job
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.spec import CandidateSource
from envcoder_bench.tasks.base import UNTRAINED

ROWS = [
    *(Result(name, seed, OK) for name in ("a", "b", "c") for seed in (0, 1)),
    Result("broken", 0, FAILED_AT_LOAD),
    Result(UNTRAINED, 0, OK),
]


def continued(
    folder: Path, waves: dict[str, list[GroupKey]], *overrides: str
) -> tuple[dict[str, list[GroupKey]], list[str]]:
    """Write the states of waves; return the groups that train on, by state, and the jobs' files."""
    run = RunFolder(folder)
    run.states.mkdir()
    for name, groups in waves.items():
        (run.states / f"{name}.pt").write_bytes(pack_job(groups, {"iteration": 3}, {"curves.csv": 4}))
    jobs, files = _states(run, compose_config("Cartpole", list(overrides)), ROWS)
    assert all(job.iteration == 3 and job.rows == {} and job.file in files for job in jobs)
    return {files[job.file].stem: job.groups for job in jobs}, [job.file.name for job in jobs]


def test_waves_go_on_from_their_states_and_others_from_the_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    waves: dict[str, list[GroupKey]] = {"first": [("a", 0), ("b", 0)], "second": [("a", 1), ("b", 1)]}
    assert continued(tmp_path, waves) == (waves, ["first.pth", "second.pth"])
    assert "no saved state to continue from: c" in caplog.text


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([("b", 0), ("c", 0)], id="one group has gone on from another state"),
        pytest.param([("c", 0), ("gone", 0)], id="one candidate is not of the run"),
        pytest.param([("c", 0), ("broken", 0)], id="one candidate has no training"),
    ],
)
def test_a_state_of_which_only_some_groups_are_left_is_not_used(
    tmp_path: Path, other: list[GroupKey], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first: list[GroupKey] = [("a", 0), ("b", 0)]
    used, _ = continued(tmp_path, {"first": first, "later": other})
    assert used == {"first": first} and "no saved state to continue from: a, b, c" in caplog.text


def test_a_training_that_depends_on_its_length_goes_on_from_no_state(tmp_path: Path) -> None:
    linear = "train.params.config.lr_schedule=linear"
    assert continued(tmp_path, {"first": [("a", 0), ("b", 0)]}, linear) == ({}, [])


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "states").mkdir()
    (tmp_path / "states" / "first.pt").write_bytes(b"")
    with pytest.raises(UserError, match=r"first\.pt is damaged \(it is empty\)"):
        _states(RunFolder(tmp_path), compose_config("Cartpole"), ROWS)


def test_candidate_of_which_the_run_would_leave_a_function_out_is_refused():
    reward = "def compute_reward(x):\n    return x\n"
    both = f"{reward}\n\ndef compute_done(x):\n    return x > 1\n"
    cfg = compose_config("Cartpole", ["shaper_types=[compute_reward]"])
    run, human = SimpleNamespace(path="runs/a"), CandidateSource("human", "human.py", both)
    sources = [human, CandidateSource("a", "a.py", reward)]
    new = [CandidateSource("b", "b.py", both)]
    with pytest.raises(UserError, match=r"b\.py: compute_terminal would not be trained, because runs/a has"):
        _refuse_left_out(run, cfg, sources, new)
    # allowed if the run was asked for it, or did so with another of its candidates
    _refuse_left_out(run, compose_config("Cartpole", []), sources, new)
    _refuse_left_out(run, cfg, [human, CandidateSource("a", "a.py", both)], new)
