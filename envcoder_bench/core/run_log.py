"""run.log: everything that a run says, in a file of its folder."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Iterator

from envcoder_bench.core.errors import UserError

NAME = "run.log"
# this package's messages, and Python's warnings where logging.captureWarnings is on
LOGGERS = ("envcoder_bench", "py.warnings")

_current: ContextVar[RunLog | None] = ContextVar("run_log", default=None)
_lock = threading.Lock()
_open = 0  # logs of all threads
_level = logging.NOTSET  # of the package's logger before the first of them


class RunLog(logging.Handler):
    """Keeps what is said until there is a file for it, and then writes it there.

    A disk that is full or fails ends the log, not the run.

    Attributes:
        path: of the file; None until ``open``.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.path: Path | None = None
        self._waiting: list[str] = []
        self._file: IO[str] | None = None
        self._lost = False

    def open(self, folder: Path) -> None:
        """Go on in the file of this run's folder."""
        self.path = folder / NAME
        try:
            self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError:
            self._lost = True
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._write(line)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message of this run; those of other threads' runs are theirs."""
        if _current.get() in (None, self):
            self.note(record.getMessage(), record.created)

    def note(self, text: str, created: float | None = None) -> None:
        """Write a text with the time of day before its first line."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
        line = f"{stamp} {text.strip()}\n"
        if self.path is None:
            self._waiting.append(line)
        else:
            self._write(line)

    def close(self) -> None:
        """Close the file."""
        super().close()
        file, self._file, self._lost = self._file, None, True
        try:
            if file is not None:
                file.close()
        except OSError:
            pass

    def _write(self, line: str) -> None:
        if self._lost or self._file is None:
            return
        try:
            self._file.write(line)
            self._file.flush()  # a run that is killed has said it
        except (OSError, ValueError):
            self._lost = True


@contextmanager
def run_log() -> Iterator[RunLog]:
    """Keep what is said in this block, from before the run's folder is there; ``open`` says where that is.

    An error that leaves the block is said, too. Runs in several threads have a log each.
    """
    log = RunLog()
    token = _current.set(log)
    _attach(log)
    try:
        yield log
    except BaseException as error:
        expected = isinstance(error, (UserError, KeyboardInterrupt))
        log.note((str(error) or type(error).__name__) if expected else traceback.format_exc())
        raise
    finally:
        _detach(log)
        _current.reset(token)
        log.close()


def note(text: str) -> None:
    """Write a text to the log of this thread's run alone: it is said elsewhere in another form, such as a table."""
    log = _current.get()
    if log is not None:
        log.note(text)


def log_path() -> Path | None:
    """The file of this thread's run; None before there is one."""
    log = _current.get()
    return None if log is None else log.path


def _attach(log: RunLog) -> None:
    global _open, _level
    with _lock:
        package = logging.getLogger(LOGGERS[0])
        if not _open:
            _level = package.level
            if package.getEffectiveLevel() > logging.INFO:
                package.setLevel(logging.INFO)
        _open += 1
        for name in LOGGERS:
            logging.getLogger(name).addHandler(log)


def _detach(log: RunLog) -> None:
    global _open
    with _lock:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(log)
        _open -= 1
        if not _open:
            logging.getLogger(LOGGERS[0]).setLevel(_level)
