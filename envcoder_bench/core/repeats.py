"""Repeated warnings are shown on one line."""

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

from envcoder_bench.core.run_log import LOGGERS, is_muted, log_path

SHOWN = 3  # places that are named for warnings of one kind

_PLACE = re.compile(r"(?P<place>([A-Za-z]:)?[^\s:][^:\n]*:\d+): (in \w+: )?")
# the parts in which warnings of one kind differ: names, numbers, and the candidate
_OWN = re.compile(r"^candidate \S+( \(seed \d+\))?|'[^']*'|\"[^\"]*\"|\d[\d.,e+-]*")


class RepeatHandler(logging.Handler):
    """Shows messages at once, and warnings at the next ``flush``, one line for all of one kind.

    The line has the first warning, the count, and the next places (FILE:LINE). A message below the level of a warning
    flushes first, so that the order is kept. Warnings of other threads than the one that created the handler are shown
    at once, because that thread may be blocked.

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
        """Show the warnings since the last flush."""
        kinds, self._kinds = self._kinds, {}
        for texts in kinds.values():
            self._show(one_line(texts, self._log))


def flush_messages() -> None:
    """Show the warnings so far; call it before work that takes long."""
    for handler in logging.getLogger(LOGGERS[0]).handlers:
        handler.flush()


def kind(text: str) -> str:
    """Return a warning without the parts that differ between warnings of one kind: place, names and numbers."""
    return _OWN.sub("#", _PLACE.sub("", text, count=1))


def one_line(texts: list[str], log: Path | None = None) -> str:
    """Join warnings of one kind to one line, with their count and the first places; ``log`` has all of them."""
    if len(texts) == 1:
        return texts[0]
    places = list(dict.fromkeys(match["place"] for match in map(_PLACE.search, texts) if match))
    others, more = places[1:SHOWN], len(places) - SHOWN
    parts = [f"{len(texts)} times"]
    if others:
        parts.append(f"also {', '.join(others)}" + (f" and {more} more" if more > 0 else ""))
    if log is not None and (more > 0 or not others):
        parts.append(f"all in {log.name}")
    return f"{texts[0]} ({'; '.join(parts)})"
