"""checkpoint.pth is plain data; those of format 1, which held pickled classes, are still read."""

import importlib
import os
import pickle

import pytest
import torch
from helpers import CARTPOLE_QUICK, start_process, stop_at, write_candidates

from envcoder_bench.core.errors import UserError
from envcoder_bench.report.results import OK, Result
from envcoder_bench.run.folder import checkpoint
from envcoder_bench.run.folder.checkpoint import FORMAT, Checkpoint, load_checkpoint, save_checkpoint

TRAINING = {
    "iteration": 3,
    "trainer": {"learners": [{"params": torch.arange(3.0), "entropy_coef": 0.5}]},
    "obs": torch.ones(2),
    "env": {"step_count": 5},
    "episodes": {"fitness": torch.tensor([[0.25, 0.5]]), "length": torch.tensor([[3.0, 4.0]])},
    "failed_at": {1: 2},
}


def with_agent(training):
    """A session's state as formats 1 and 2 had it."""
    rest = {key: value for key, value in training.items() if key not in ("trainer", "obs", "env")}
    return {**rest, "agent": {**training["trainer"], "obs": training["obs"], "env_state": training["env"]}}


def made():
    rows = [Result("a", 0, OK, 0.5, 0.25, 0.75, 2, 3.5, None, 64, "", 1), Result("b", 0, "failed", error="b.py:1: no")]
    return Checkpoint(rows, 1, 2.5, 7, 8, [("c", 0), ("c", 1)], dict(TRAINING), {"curves.csv": 4})


def same(one, other):
    for name in ("waves", "seconds", "needed", "peak", "groups"):
        assert getattr(one, name) == getattr(other, name)
    assert [repr(r) for r in one.results] == [repr(r) for r in other.results]  # NaN is not NaN
    assert torch.equal(one.training["trainer"]["learners"][0]["params"], torch.arange(3.0))
    assert torch.equal(one.training["obs"], torch.ones(2)) and one.training["env"] == {"step_count": 5}
    assert torch.equal(one.training["episodes"]["fitness"], TRAINING["episodes"]["fitness"])
    assert one.training["failed_at"] == {1: 2}


def test_loaded_checkpoint_equals_the_saved_one(tmp_path):
    save_checkpoint(tmp_path / "checkpoint.pth", made())
    loaded = load_checkpoint(tmp_path / "checkpoint.pth")
    same(loaded, made())
    assert loaded.rows == {"curves.csv": 4}
    assert loaded.done == {("a", 0), ("b", 0)} and loaded.begun


@pytest.mark.slow
def test_checkpoint_of_a_run_loads_with_weights_only(tmp_path):
    output = tmp_path / "run"
    candidate = write_candidates(tmp_path, {"a": "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"})
    words = [*CARTPOLE_QUICK, "--num_envs_per_candidate", 2, "--learning_iterations", 5000]
    file = output / "checkpoint.pth"
    stop_at(start_process([*words, "--candidates", *candidate, "checkpoint_minutes=0"], output), file.exists, 9)
    state = torch.load(file, weights_only=True)  # which refuses every class
    assert state["format"] == FORMAT
    assert load_checkpoint(file).training["iteration"] == state["training"]["iteration"] > 0


@pytest.fixture
def format_1(monkeypatch):
    """The classes of format 1 where their pickles look for them, and a checkpoint made of them."""

    def pickled(module, name):
        own = type(name, (), {"__module__": module})
        monkeypatch.setattr(importlib.import_module(module), name, own, raising=False)
        return own

    def fill(kind, values):
        instance = kind()
        vars(instance).update(values)
        return instance

    old_result = pickled("envcoder_bench.report.results", "Result")
    episodes = fill(pickled("envcoder_bench.env.evaluation", "Episodes"), TRAINING["episodes"])
    fields = dict(vars(made()))
    del fields["rows"]
    fields["results"] = [fill(old_result, vars(row)) for row in made().results]
    fields["training"] = {**with_agent(TRAINING), "episodes": episodes}
    return fill(pickled("envcoder_bench.run.folder.run_folder", "Checkpoint"), fields)


def test_checkpoint_of_format_1_is_loaded(tmp_path, format_1):
    path = tmp_path / "checkpoint.pth"
    torch.save(format_1, path)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    loaded = load_checkpoint(path)
    same(loaded, made())
    assert loaded.rows == {}
    save_checkpoint(path, loaded)  # and is of today's format from then on
    same(load_checkpoint(path), made())


@pytest.mark.parametrize("training", [None, with_agent(TRAINING)])
def test_checkpoint_of_format_2_is_loaded(tmp_path, monkeypatch, training):
    path, old = tmp_path / "checkpoint.pth", made()
    old.training = training
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    save_checkpoint(path, old)
    monkeypatch.undo()
    loaded = load_checkpoint(path)
    if training is None:
        assert loaded.training is None
    else:
        same(loaded, made())
        assert "agent" not in loaded.training


class Command:
    def __reduce__(self):
        return os.mkdir, ("made_by_a_pickle",)


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "it is empty"),
        (b"hello\n", "it is truncated, or not a checkpoint"),
        ("cut", "it is truncated, or not a checkpoint"),
        ({"model": torch.zeros(1)}, "it is not a checkpoint of a run"),
        ([1, 2], "it is not a checkpoint of a run"),
        (Command(), f"it holds {os.mkdir.__module__}.mkdir"),
        ({"format": 2, "results": 3}, "it is truncated, or not a checkpoint"),
    ],
    ids=["empty", "text", "cut", "policy", "list", "pickle", "foreign"],
)
def test_damaged_checkpoint_is_reported_with_its_path_and_remedy(tmp_path, monkeypatch, content, reason):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint.pth"
    if content == "cut":
        save_checkpoint(path, made())
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(UserError) as error:
        load_checkpoint(path)
    assert str(error.value) == (
        f"{path} is damaged ({reason}): restore it from a copy; or delete it, and --resume trains all candidates from"
        " the beginning"
    )
    assert not (tmp_path / "made_by_a_pickle").exists()


def test_checkpoint_of_a_newer_format_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pth"
    monkeypatch.setattr(checkpoint, "FORMAT", FORMAT + 5)
    save_checkpoint(path, made())
    monkeypatch.undo()
    with pytest.raises(UserError, match=rf"has format {FORMAT + 5}, and this version .* reads formats up to {FORMAT}"):
        load_checkpoint(path)
