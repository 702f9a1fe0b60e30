"""Runs survive closed pipes and terminals, full disks and missing streams."""

import contextlib
import errno
import io
import os
import re
import resource
import signal
import subprocess
import sys
import warnings

import pytest
from forked import Forked
from helpers import (
    CARTPOLE_QUICK,
    COSINE,
    EVAL_SHAPERS,
    PATIENCE,
    TINY_WORDS,
    assert_same_tables,
    refused,
    run,
    stopped_when,
    write_candidates,
)

from envcoder_bench.cli.command_line import command
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.core import files
from envcoder_bench.core.shell import resume_command
from envcoder_bench.run import evaluate

pytestmark = pytest.mark.slow


def words(folder, iterations):
    path = write_candidates(folder / "files", {"good": COSINE})
    size = ["--num_envs_per_candidate", 2, "--learning_iterations", iterations, "--no_baselines"]
    return [*map(str, [*CARTPOLE_QUICK, *TINY_WORDS, "--candidates", *path, *size])]


def test_run_needs_neither_output_streams_nor_a_cache(tmp_path):
    (tmp_path / "file").write_text("")

    def closed():  # as Python starts with closed streams
        sys.stdin = sys.stdout = sys.stderr = None
        os.closerange(0, 3)
        os.environ["ENVCODER_BENCH_CACHE"] = str(tmp_path / "file" / "cache")
        return command("eval-shapers", main, [*words(tmp_path, 1), "--output_dir", str(tmp_path / "run")])

    assert Forked(closed).wait(PATIENCE) == 0
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"summary.json", "results.csv"} <= names and "checkpoint.pth" not in names


@contextlib.contextmanager
def unreadable(stream, *names):
    """Replace streams by ones that nobody can read: on a full disk, or a pipe that was closed."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as streams:
        for name in names:
            if stream == "closed pipe":
                reader, writer = os.pipe()
                os.close(reader)
            number = os.open("/dev/full", os.O_WRONLY) if stream == "full disk" else writer
            output = os.fdopen(number, "w", buffering=1)  # as on a terminal: a line is written at once
            streams.push(lambda kind, *_: kind is None or issubclass(kind, OSError))  # of what it still holds
            streams.enter_context(output)
            patch.setattr(sys, name, output)
        yield


STREAMS = pytest.mark.parametrize("stream", ["full disk", "closed pipe"])


@STREAMS
def test_output_that_nobody_can_read_does_not_end_a_training(tmp_path, stream):
    with unreadable(stream, "stdout", "stderr"):
        code = command("eval-shapers", main, [*words(tmp_path, 1), "--output_dir", str(tmp_path / "run")])
    assert code == 0 and (tmp_path / "run" / "summary.json").exists()


def test_ascii_output_encoding_replaces_table_characters(tmp_path, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")  # as with PYTHONIOENCODING=ascii
    monkeypatch.setattr(sys, "stdout", stream)
    assert command("eval-shapers", main, [*words(tmp_path, 1), "--output_dir", str(tmp_path / "run")]) == 0
    stream.flush()
    assert b" +- " in stream.buffer.getvalue()


@STREAMS
def test_description_that_nobody_can_read_is_no_error(capsys, stream):
    with unreadable(stream, "stdout"):
        code = command("eval-shapers", main, ["--task", "Anymal", "--describe"])
    assert (code, capsys.readouterr().err) == (0, "")


@pytest.mark.parametrize("redirection", ["| head -n 1", ">/dev/full", ">&-"])
def test_help_accepts_closed_streams(redirection):
    line = f"{' '.join(EVAL_SHAPERS)} --help {redirection}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, b"")


def signalled(folder, number, times=1):
    """Run the command in this process, and signal it after the first iteration; returns the exit code."""
    before = signal.getsignal(number)
    with stopped_when(lambda: True, number, times):
        code = main([*words(folder, 3), "--output_dir", str(folder / "run")])
    assert signal.getsignal(number) == before, "the handlers are those of before"
    return code


@pytest.mark.parametrize("number, times", [(signal.SIGHUP, 3), (signal.SIGTERM, 1), (signal.SIGINT, 1)])
def test_signals_stop_a_training_with_a_checkpoint(tmp_path, capsys, number, times):
    assert signalled(tmp_path, number, times) == 128 + number
    told = capsys.readouterr().err
    assert "stopped after iteration 1" in told and f"--resume {tmp_path / 'run'}" in told
    assert (tmp_path / "run" / "checkpoint.pth").exists()


def test_nohup_is_respected(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signalled(tmp_path, signal.SIGHUP) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (tmp_path / "run" / "summary.json").exists()


# disks


def test_file_size_limit_ends_a_run_with_one_message_and_it_resumes(tmp_path, capsys, whole):
    output, limits = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    capsys.readouterr()
    resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, limits[1]))  # the checkpoint is larger; the tables are not
    try:
        code = command("eval-shapers", main, [*words(tmp_path, 4), "checkpoint_minutes=0", "--output_dir", str(output)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    last = capsys.readouterr().err.splitlines()[-1]
    assert code == 2
    assert re.match(rf"eval-shapers: error: {output}/jobs/\w+\.pth: File too large\. What was saved", last)
    assert f"--resume {output}" in last
    assert main(["--resume", str(output)]) == 0
    assert_same_tables(output, whole)


def full(path, *_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run whose disk never fills."""
    folder = tmp_path_factory.mktemp("whole")
    return run(folder / "whole", *words(folder, 4), "checkpoint_minutes=0")


@pytest.mark.parametrize("nth", [1, 3, 6, 14])
def test_full_disk_at_any_write_loses_no_results(tmp_path, monkeypatch, capsys, nth, whole):
    """The nth atomic write of a run fails: run folder, result, checkpoint, policy, picture or summary."""
    count, fsync = iter(range(1, 10_000)), os.fsync

    def limited(fd):
        return full(fd) if next(count) == nth else fsync(fd)

    monkeypatch.setattr(files.os, "fsync", limited)
    output = tmp_path / "run"
    capsys.readouterr()
    code = main([*words(tmp_path, 4), "checkpoint_minutes=0", "--output_dir", str(output)])
    monkeypatch.undo()
    told = capsys.readouterr().err
    assert code == 2, "so many files are written"
    errors = [line for line in told.splitlines() if line.startswith("eval-shapers: error: ")]
    assert len(errors) == 1 and "No space left on device" in errors[0] and str(output) in errors[0]
    if not output.exists():  # nothing was begun, and nothing is left of it
        assert "cannot be written" in errors[0]
        return
    assert f"resume with: {resume_command(output)}" in errors[0]
    assert main(["--resume", str(output)]) == 0
    assert_same_tables(output, whole)


def test_other_errors_keep_their_traceback():
    def fails(words):
        raise FileNotFoundError(errno.ENOENT, "a mistake of ours", "somewhere")

    with pytest.raises(FileNotFoundError):
        command("eval-shapers", fails, [])


@pytest.mark.parametrize("place", ["{long}", "runs/{long}", "{file}/run", "{file}"])
def test_impossible_run_folder_is_refused_before_loading(tmp_path, monkeypatch, capsys, place):
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluate, "evaluate", lambda *args, **kwargs: pytest.fail("too late"))
    output = place.format(long="x" * 300, file=tmp_path / "file")
    told = refused(main, ["--task", "Cartpole", "--output_dir", output], capsys)
    assert told.startswith("eval-shapers: error: --output_dir ") and len(told) < 400
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_warnings_of_the_package_are_shown_as_one_line(capsys):
    def warns(_):
        package = os.path.dirname(files.__file__)
        warnings.warn_explicit("this is slow", RuntimeWarning, os.path.join(package, "files.py"), 7)
        warnings.warn_explicit("that is old", UserWarning, "/elsewhere/module.py", 9)
        return 0

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda m, c, f, n, file=None, line=None: print(
            warnings.formatwarning(m, c, f, n, line), end="", file=sys.stderr
        )
        assert command("eval-shapers", warns, []) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "warning: this is slow"
    assert told[1] == "/elsewhere/module.py:9: UserWarning: that is old"
