"""Processes that work for this one, with the same modules, and end with it."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO

_BOOT = "import sys; sys.path[:] = {path!r}; from {module} import {name}; {name}()"


def start_helper(
    function: Callable[[], None], stdin: int | IO[bytes], stdout: int = subprocess.DEVNULL
) -> subprocess.Popen:
    """Start a process that calls a function, which begins with ``end_with_parent``; Ctrl-C does not reach it."""
    path = [os.path.abspath(entry) for entry in sys.path]
    boot = _BOOT.format(path=path, module=function.__module__, name=function.__name__)
    return subprocess.Popen(
        [sys.executable, "-c", boot], stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, start_new_session=True
    )


def end_with_parent() -> None:
    """Leave Ctrl-C to the parent of this process, and on Linux end when it does, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
