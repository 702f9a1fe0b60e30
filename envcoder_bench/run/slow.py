"""Name the candidate file that keeps a run waiting: one with an endless loop says nothing itself."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Iterator

log = logging.getLogger(__name__)

SECONDS = 10.0  # until a file is named


class SlowFiles:
    """Watches the thread that makes it, from another one, while it works on candidate files.

    A file that takes longer than ``seconds`` is named by a warning, with the line that is running, and so is the file
    that Ctrl-C finds at work.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._thread = seconds, threading.get_ident()
        self._at: list[tuple[str, str, float]] = []  # what is done to which file since when, the innermost last
        self._ended = threading.Event()

    def __enter__(self) -> SlowFiles:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    @contextmanager
    def step(self, doing: str, file: str) -> Iterator[None]:
        """Do something to a file, such as ``loading``."""
        self._at.append((doing, file, time.monotonic()))
        try:
            yield
        except KeyboardInterrupt as stop:
            if str(stop):  # an inner step has told
                raise
            line = _line_in(stop.__traceback__, file)
            raise KeyboardInterrupt(f"while {doing} {_place(file, line)}") from None
        finally:
            self._at.pop()

    def _watch(self) -> None:
        told: tuple[str, str, float] | None = None
        while not self._ended.wait(min(1.0, self._seconds / 4)):
            at = self._at[-1] if self._at else None
            if at is None or at == told or time.monotonic() - at[2] < self._seconds:
                continue
            told = at
            line = _line_of(sys._current_frames().get(self._thread), at[1])
            place = _place(at[1], line)
            log.warning("%s: still %s this file after %.0f s; Ctrl-C stops", place, at[0], self._seconds)


def _place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def _line_of(frame: FrameType | None, file: str) -> int | None:
    """The line of ``file`` that runs, or waits for what it called."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return None if frame is None else frame.f_lineno


def _line_in(trace: TracebackType | None, file: str) -> int | None:
    """The innermost line of ``file`` in a traceback."""
    lines = [line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == file]
    return lines[-1] if lines else None
