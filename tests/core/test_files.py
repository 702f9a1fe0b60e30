import os
import signal
import subprocess
import sys

import pytest

from envcoder_bench.core.files import write_atomic

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
