"""Commands in a fork of the test's process, which has imported what they need: an import takes seconds."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn


class Forked:
    """As much of subprocess.Popen as tests use.

    Args:
        work: what the process does; it returns the exit code.
        stderr, stdout: files for what it says there.
    """

    def __init__(self, work: Callable[[], int], stderr: Path | str = os.devnull, stdout: str = os.devnull) -> None:
        self.returncode: int | None = None
        self._stderr = Path(stderr)
        self.pid = os.fork()
        if self.pid == 0:
            _be(work, stderr, stdout)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 900.0) -> int:
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.01)
        return self.returncode or 0

    def waited(self) -> "Forked":
        """Return it when it has ended, as subprocess.run does."""
        self.wait()
        return self

    def communicate(self, timeout: float = 900.0) -> tuple[str, str]:
        self.wait(timeout)
        return "", self._stderr.read_text(encoding="utf-8") if self._stderr.is_file() else ""

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _be(work: Callable[[], int], stderr: Path | str, stdout: str) -> NoReturn:
    """Be the process."""
    gc.freeze()  # objects of the test's process are not collected here: what some of them end was not forked
    code = 1
    try:
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            signal.signal(number, handler)
        for file, path in ((0, os.devnull), (1, stdout), (2, stderr)):
            os.dup2(os.open(path, os.O_RDONLY if file == 0 else os.O_CREAT | os.O_WRONLY | os.O_APPEND), file)
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def popen(module: str, main: Callable[[Sequence[str]], int]) -> Callable[..., Any]:
    """Return what takes the place of subprocess.Popen for commands ``python -m module ...``."""

    def start(command: Sequence[str], **_: Any) -> Forked:
        assert [*command[:3]] == [sys.executable, "-m", module]
        return Forked(lambda: main(command[3:]))

    return start
