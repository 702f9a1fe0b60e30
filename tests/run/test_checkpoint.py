"""checkpoint.pth and the files of jobs/ are plain data, and damaged ones are reported."""

import math
import os
import zipfile

import pytest
import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.results.rows import OK, Result
from envcoder_bench.run.folder import checkpoint
from envcoder_bench.run.folder.checkpoint import (
    FORMAT,
    Checkpoint,
    load_checkpoint,
    load_job,
    pack_checkpoint,
    pack_job,
)
from envcoder_bench.shaping.contract import Fault


def made():
    rows = [
        Result(
            "a",
            0,
            OK,
            0.5,
            0.25,
            0.75,
            episodes=2,
            episode_length=3.5,
            shaped_return=math.nan,
            env_steps=64,
            fault=None,
            unstable_resets=1,
        ),
        Result("b", 0, "failed", fault=Fault("no", "b.py", 1)),
    ]
    return Checkpoint(rows, 1, 2.5, 7, 8, {"curves.csv": 4}, decided=[3])


def test_loaded_checkpoint_equals_the_saved_one(tmp_path):
    (tmp_path / "checkpoint.pth").write_bytes(pack_checkpoint(made()))
    loaded = load_checkpoint(tmp_path / "checkpoint.pth")
    assert repr(loaded) == repr(made())  # NaN is not NaN
    assert loaded.done == {("a", 0), ("b", 0)} and loaded.begun


def test_job_is_read_as_it_was_packed(tmp_path):
    groups, state = [("c", 0), ("c", 1)], {"iteration": 3, "obs": torch.ones(2), "failed_at": {1: 2}}
    job, loaded = load_job(tmp_path / "job.pth", pack_job(groups, state, {"curves.csv": 4}))
    assert (job.groups, job.iteration, job.rows, job.parked) == (groups, 3, {"curves.csv": 4}, False)
    assert torch.equal(loaded.pop("obs"), torch.ones(2)) and loaded == {"iteration": 3, "failed_at": {1: 2}}


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
        (Command(), "it is truncated, or not a checkpoint"),
        ({"format": 1, "results": 3}, "it is truncated, or not a checkpoint"),
    ],
    ids=["empty", "text", "cut", "policy", "list", "pickle", "foreign"],
)
def test_damaged_checkpoint_is_reported_with_its_path_and_remedy(tmp_path, monkeypatch, content, reason):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint.pth"
    if content == "cut":
        path.write_bytes(pack_checkpoint(made()))
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


def with_pickle(path, pickled):
    """Replace the pickle in a valid checkpoint, with a valid checksum."""
    path.write_bytes(pack_checkpoint(made()))
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, pickled if name.endswith("/data.pkl") else content)


def text(word):
    return b"\x8c" + bytes([len(word)]) + word.encode()


COMMAND = "touch was_here"
SYSTEM = text(COMMAND) + b"\x85R."
IMPORT = text("os.system") + b"\x85R"
PICKLES = {
    "the name that torch imports": b"\x80\x02ctorch._utils\n_import_dotted_name\n" + IMPORT + SYSTEM,
    "that name in protocol 4": b"\x80\x04" + text("torch._utils") + text("_import_dotted_name") + b"\x93" + IMPORT
    + SYSTEM,
    "a dotted name": b"\x80\x04" + text("torch") + text("os.system") + b"\x93" + SYSTEM,
    "a dotted name of a module": b"\x80\x04" + text("torch._utils") + text("torch.os.system") + b"\x93" + SYSTEM,
    "a dotted name in protocol 2": b"\x80\x02ctorch\nos.system\n" + SYSTEM,
    "a module": b"\x80\x02cos\nsystem\n" + SYSTEM,
    "a class": b"\x80\x02ctorch.hub\nload\n" + text("/tmp") + text("x") + b"\x86R.",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
@pytest.mark.parametrize("name", PICKLES)
def test_checkpoint_runs_no_code(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint.pth"
    with_pickle(path, PICKLES[name])
    for load in (load_checkpoint, load_job):
        with pytest.raises(UserError, match="is damaged"):
            load(path)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pth"]


def test_checkpoint_of_a_newer_format_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pth"
    monkeypatch.setattr(checkpoint, "FORMAT", FORMAT + 5)
    path.write_bytes(pack_checkpoint(made()))
    monkeypatch.undo()
    with pytest.raises(UserError, match=rf"has format {FORMAT + 5}, and this version .* reads formats up to {FORMAT}"):
        load_checkpoint(path)
