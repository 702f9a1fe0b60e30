"""Groups that wait at a rung: which of a group's states counts, and when a file goes."""

import pytest

from envcoder_bench.results.rows import Result
from envcoder_bench.run.folder.checkpoint import Checkpoint, load_job, packed
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.train.parked import ParkedGroups

A, B = ("a", 0), ("b", 0)


def park(parked, iteration, keys):
    """Park groups whose states are texts."""
    rows = [Result(name, seed, fitness=0.1) for name, seed in keys]
    training = {
        "iteration": iteration, "results": [vars(row) for row in rows],
        "parts": [f"{name} at {iteration}" for name, _ in keys], "policies": [b"policy"] * len(keys),
    }  # fmt: skip
    content = packed({"format": 1, "groups": keys, "training": training, "rows": {}})
    parked.add(iteration, rows, content, {key: b"policy" for key in keys})


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_the_latest_state_of_each_group_counts(folder):
    parked = ParkedGroups(folder, Checkpoint())
    park(parked, 4, [A, B])
    park(parked, 6, [B])
    assert (parked.iteration(A), parked.iteration(B), parked.iteration(("c", 0))) == (4, 6, 0)
    file = folder.path / "packed.pth"
    file.write_bytes(parked.pack([A, B]))
    job, training = load_job(file)
    assert job.groups == [A, B] and training["parts"] == ["a at 4", "b at 6"]


def test_a_file_goes_when_none_of_its_states_is_needed(folder):
    saved = Checkpoint()
    parked = ParkedGroups(folder, saved)
    park(parked, 4, [A, B])
    park(parked, 6, [B])
    parked.drop_superseded()
    assert [job.iteration for job in saved.jobs] == [4, 6]  # a waits in the first
    saved.results.append(Result(*A, fitness=0.2))
    parked.drop_superseded()
    assert [job.iteration for job in saved.jobs] == [6]
    assert [path for path in folder.jobs.iterdir()] == [saved.jobs[0].file]
    assert ParkedGroups(folder, saved).rows.keys() == {B}


def test_rows_of_waiting_groups_are_of_the_run(folder):
    saved = Checkpoint(rows={"curves.csv": 2})
    parked = ParkedGroups(folder, saved)
    park(parked, 4, [A])
    saved.jobs[0].rows.update({"curves.csv": 5, "points.csv": 1})
    assert saved.all_rows == {"curves.csv": 7, "points.csv": 1}
