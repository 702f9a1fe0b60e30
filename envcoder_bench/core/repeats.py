"""Warnings that repeat, on one line."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from typing import Callable

from envcoder_bench.core.messages import is_muted
from envcoder_bench.core.run_log import LOGGERS, log_path

SHOWN = 3  # places of a kind that are named

_PLACE = re.compile(r"(?P<place>([A-Za-z]:)?[^\s:][^:\n]*:\d+): (in \w+: )?")
# what differs between two warnings of one kind: names, numbers, and the candidate that it is about
_OWN = re.compile(r"^candidate \S+( \(seed \d+\))?|'[^']*'|\"[^\"]*\"|\d[\d.,e+-]*")


class RepeatHandler(logging.Handler):
    """Shows messages at once, but warnings at the next ``flush``: those of one kind as one line.

    The line is the first warning with the count, and the next places (FILE:LINE). What is no warning comes after the
    warnings before it, so it flushes. Warnings of other threads than the one that made this are shown at once: that
    thread may be stuck.

    Args:
        show: prints a message.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show
        self._thread = threading.get_ident()
        self._kinds: dict[str, list[str]] = {}
        self._log: Path | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if is_muted():
            return
        text = record.getMessage().rstrip("\n")
        if record.thread != self._thread:
            self._show(text)
            return
        self._log = log_path() or self._log
        if record.levelno >= logging.WARNING:
            self._kinds.setdefault(kind(text), []).append(text)
        else:
            self.flush()
            self._show(text)

    def flush(self) -> None:
        """Show the warnings since the last time."""
        kinds, self._kinds = self._kinds, {}
        for texts in kinds.values():
            self._show(one_line(texts, self._log))


def flush_messages() -> None:
    """Show the warnings so far: what follows takes a while."""
    for handler in logging.getLogger(LOGGERS[0]).handlers:
        handler.flush()


def kind(text: str) -> str:
    """A warning without what differs between those of one kind: place, names and numbers."""
    return _OWN.sub("#", _PLACE.sub("", text, count=1))


def one_line(texts: list[str], log: Path | None = None) -> str:
    """Say warnings of one kind once, with their count and the first places; all of them are in ``log``."""
    if len(texts) == 1:
        return texts[0]
    places = list(dict.fromkeys(found["place"] for found in map(_PLACE.search, texts) if found))
    others, more = places[1:SHOWN], len(places) - SHOWN
    parts = [f"{len(texts)} times"]
    if others:
        parts.append(f"also {', '.join(others)}" + (f" and {more} more" if more > 0 else ""))
    if log is not None and (more > 0 or not others):
        parts.append(f"all in {log.name}")
    return f"{texts[0]} ({'; '.join(parts)})"
