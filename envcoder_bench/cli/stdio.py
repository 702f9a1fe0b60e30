"""Output that never fails: closed pipes, full disks and limited encodings do not end a run."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_PLAIN = str.maketrans({"±": "+-", "…": "...", "█": "#", "→": "->"})


class BestEffort:
    """A text stream that is abandoned silently when it can no longer be written to.

    It is then replaced by a stream that can be flushed, because Python flushes at exit and would report a failure. All
    other attributes are those of the stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> int:
        """Write a text; characters that the encoding lacks are replaced."""
        if not self._lost:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                encodable = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
                self._attempt(lambda: self._stream.write(encodable))
            except (OSError, ValueError):  # ValueError: it is closed
                self._abandon()
        return len(text)

    def flush(self) -> None:
        if not self._lost:
            self._attempt(self._stream.flush)

    def _attempt(self, call: Any) -> None:
        try:
            call()
        except (OSError, ValueError):
            self._abandon()

    def _abandon(self) -> None:
        self._lost = True
        try:  # discard buffered output
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
        except (OSError, ValueError):  # a stream that is not a file
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def best_effort_output() -> Iterator[None]:
    """Ignore failures of printing in this block, and of the flush at its end."""
    before = sys.stdout, sys.stderr
    opened = [_reopen(number) for number, stream in enumerate(before, 1) if stream is None]
    kept = iter(opened)
    streams = [BestEffort(next(kept) if stream is None else stream) for stream in before]
    sys.stdout, sys.stderr = streams  # type: ignore[assignment]
    try:
        yield
    finally:
        for stream in streams:
            stream.flush()
        sys.stdout, sys.stderr = before


def _reopen(number: int) -> TextIO:
    """Open a standard stream that was closed before the program began (``>&-``) to the null device.

    Otherwise the next opened file would get its number, and libraries would print into it.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    if null != number:
        try:
            os.fstat(number)
        except OSError:
            os.dup2(null, number)
    return open(null, "w", encoding="utf-8", closefd=False)
