"""Printing that never ends a run: a reader that has gone, a full disk and an encoding without ± are no errors."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import Any, Iterator, TextIO

_PLAIN = str.maketrans({"±": "+-", "…": "...", "█": "#", "→": "->"})


class BestEffort:
    """A text stream that is given up, silently, when it cannot be written to any more.

    What it leaves behind is a stream that can be flushed: Python does so at its end, and would report a failure as the
    program's. Everything else is the stream's own.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> int:
        """Write as ``print`` does; a character that the encoding lacks is spelled out."""
        if not self._lost:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                known = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
                self._attempt(lambda: self._stream.write(known))
            except (OSError, ValueError):  # ValueError: it is closed
                self._give_up()
        return len(text)

    def flush(self) -> None:
        if not self._lost:
            self._attempt(self._stream.flush)

    def _attempt(self, call: Any) -> None:
        try:
            call()
        except (OSError, ValueError):
            self._give_up()

    def _give_up(self) -> None:
        self._lost = True
        try:  # what is still buffered goes nowhere
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
        except (OSError, ValueError):  # a stream that is no file
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def best_effort_output() -> Iterator[None]:
    """Print in this block, and flush at its end, without ever failing for it."""
    before = sys.stdout, sys.stderr
    opened = [_reopen(number) for number, stream in enumerate(before, 1) if stream is None]
    kept = iter(opened)
    own = [BestEffort(next(kept) if stream is None else stream) for stream in before]
    sys.stdout, sys.stderr = own  # type: ignore[assignment]
    try:
        yield
    finally:
        for stream in own:
            stream.flush()
        sys.stdout, sys.stderr = before


def _reopen(number: int) -> TextIO:
    """Open a standard stream that was closed before the program began (``>&-``), onto nothing.

    Otherwise the next file to be opened would get its number, and with it what libraries print.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    if null != number:
        try:
            os.fstat(number)
        except OSError:
            os.dup2(null, number)
    return open(null, "w", encoding="utf-8", closefd=False)
