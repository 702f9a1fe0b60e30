import os
import signal
import subprocess
import sys
import threading

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import locked, write_atomic, write_shared
from envcoder_bench.core.run_log import note, run_log
from envcoder_bench.results.logs import CurveLog
from envcoder_bench.search.providers.transcript import Transcript

WRITER = """
import os, signal, sys
from envcoder_bench.core import files
def killed(*args): os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[2], killed)
files.write_atomic(sys.argv[1], "new" * 100_000)
"""


def test_write_atomic_replaces_text_and_bytes(tmp_path):
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    write_atomic(path, "grüß\r\n")
    assert path.read_bytes() == "grüß\r\n".encode()
    write_atomic(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_killed_writer_keeps_the_old_file(tmp_path, where):
    path = tmp_path / "a.txt"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", WRITER, str(path), where])
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    write_atomic(path, "newer")  # the killed writer's remains are in nobody's way
    assert path.read_text() == "newer" and os.listdir(tmp_path) == ["a.txt"]


def test_failing_writer_keeps_the_old_file_and_removes_temporary_files(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.txt"]


def test_errors_name_the_file_and_not_the_temporary_one(tmp_path, monkeypatch):
    def refused(*args):
        raise PermissionError(13, "Permission denied", *args)

    for function in ("unlink", "replace"):
        with monkeypatch.context() as patch, pytest.raises(PermissionError) as caught:
            patch.setattr(os, function, refused)
            write_atomic(tmp_path / "results.csv", "new")
        assert caught.value.filename == str(tmp_path / "results.csv")
    monkeypatch.setattr("filelock.FileLock.acquire", lambda lock, timeout: refused(lock.lock_file))
    with pytest.raises(PermissionError) as caught, locked(tmp_path, "run"):
        pass
    assert caught.value.filename == str(tmp_path)


def linked(path, target):
    target.write_text("mine")
    path.symlink_to(target)
    return target


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links")
def test_writers_follow_no_link(tmp_path):
    target = linked(tmp_path / ".a.txt.tmp", tmp_path / "target")
    write_atomic(tmp_path / "a.txt", "new")
    temporary = f".b.txt.{os.getpid()}.{threading.get_ident()}.tmp"
    (tmp_path / temporary).symlink_to(target)
    write_shared(tmp_path / "b.txt", "new")
    assert (
        target.read_text() == "mine" and (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() == "new"
    )
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt", "target"]


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links")
def test_link_that_appears_between_two_steps_is_refused(tmp_path, monkeypatch):
    target = linked(tmp_path / ".a.txt.tmp", tmp_path / "target")
    monkeypatch.setattr(os, "unlink", lambda path: None)
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "a.txt", "new")
    assert target.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links")
def test_logs_of_a_resumed_run_follow_no_link(tmp_path):
    log, before = tmp_path / "run.log", tmp_path / "target"
    linked(log, before)
    with run_log() as messages:
        messages.open(tmp_path)
        note("a command of a shell")
    (tmp_path / "curves.csv").symlink_to(before)
    CurveLog(tmp_path / "curves.csv").close()  # the link is replaced
    (tmp_path / "transcript.jsonl").symlink_to(tmp_path / "new")
    with pytest.raises(UserError, match="cannot be written"):
        Transcript(tmp_path / "transcript.jsonl", {})
    assert before.read_text() == "mine" and not (tmp_path / "new").exists()
