"""Tests keep traced programs in a folder of their own; those that start processes or runs are marked slow."""

import atexit
import contextlib
import os
import platform
import shutil
import sys
import tempfile

import pytest

folder = tempfile.mkdtemp(prefix="envcoder_bench_tests_")
atexit.register(shutil.rmtree, folder, ignore_errors=True)
os.environ["ENVCODER_BENCH_CACHE"] = folder
os.environ["ENVCODER_BENCH_VIDEO"] = "0"  # videos take seconds; tests/video makes some

platform.processor()  # starts uname, once in a process: not within a test, whichever comes first
with contextlib.suppress(ImportError):
    import mujoco  # noqa: F401, its first import starts a process

_PROCESSES = {"subprocess.Popen", "os.fork", "os.posix_spawn"}  # events of Python's audit
_seen = []  # of them in the test that runs, if it is not marked slow
_watching = False


def _hook(event, args):
    if _watching and event in _PROCESSES:
        _seen.append(f"starts a process: {args[0] if args else event}")
    elif _watching and event == "open" and str(args[0]).endswith(".config.yaml.tmp"):  # of a run's folder
        _seen.append("begins a run")


sys.addaudithook(_hook)


@pytest.fixture(autouse=True)
def fast_tests_start_nothing(request):
    """Fail a test that starts a process or begins a run and is not marked slow."""
    global _watching
    if request.node.get_closest_marker("slow") or request.node.get_closest_marker("cuda"):
        yield
        return
    _seen.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    if _seen:
        pytest.fail(f"mark this test with @pytest.mark.slow: it {_seen[0]}", pytrace=False)
