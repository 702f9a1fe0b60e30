"""Warnings that name candidate files that take long, for example because of an endless loop."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

log = logging.getLogger(__name__)

SECONDS = 10.0  # until a file is named


class SlowFiles:
    """Watches the thread that creates it, from another thread, while it processes candidate files.

    A warning names a file that takes longer than ``seconds``, with the line that is running. The error of Ctrl-C names
    the current file.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._thread = seconds, threading.get_ident()
        self._at: list[tuple[str, str, float]] = []  # (action, file, start time), the innermost last
        self._ended = threading.Event()

    def __enter__(self) -> SlowFiles:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    @contextmanager
    def step(self, doing: str, file: str) -> Iterator[None]:
        """Mark the block as an action on a file, such as ``loading``."""
        self._at.append((doing, file, time.monotonic()))
        try:
            yield
        except KeyboardInterrupt as stop:
            if str(stop):  # an inner step has added the place
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
            remedy = "Ctrl-C stops, and --untrusted has a time limit"
            log.warning("%s: still %s this file after %.0f s; %s", place, at[0], self._seconds, remedy)


def _place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def _line_of(frame: FrameType | None, file: str) -> int | None:
    """Return the line of ``file`` that is running or has called other code."""
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return None if frame is None else frame.f_lineno


def _line_in(trace: TracebackType | None, file: str) -> int | None:
    """Return the innermost line of ``file`` in a traceback."""
    lines = [line for frame, line in traceback.walk_tb(trace) if frame.f_code.co_filename == file]
    return lines[-1] if lines else None
