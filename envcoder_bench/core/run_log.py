"""Messages of a run: the file run.log in its folder, muting, and repeated warnings on one line."""

from __future__ import annotations

import io
import logging
import re
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import no_links
from envcoder_bench.core.plain_text import one_line, visible

NAME = "run.log"
MOST_PRINTED = 20  # lines of a candidate on the screen
MOST_LOGGED = 1000  # further lines of it in run.log
WIDEST = 500  # characters of such a line
# this project's messages, and Python's warnings where logging.captureWarnings is on
LOGGERS = ("envcoder_bench", "mujoco_batches", "py.warnings")

_current: ContextVar[RunLog | None] = ContextVar("run_log", default=None)
_prints: ContextVar[Prints | None] = ContextVar("prints", default=None)  # what this thread's candidates print
_lock = threading.Lock()
_open = 0  # handlers of all threads, see ``listening``
_level = logging.NOTSET  # the level of the package's logger before the first handler


class RunLog(logging.Handler):
    """Buffers messages until the file is open, then writes them to it.

    If the disk is full or fails, the log ends and the run continues.

    Attributes:
        path: the path of the file; None until ``open``.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.path: Path | None = None
        self._waiting: list[str] = []
        self._file: IO[str] | None = None
        self._lost = False

    def open(self, folder: Path) -> None:
        """Open the file in this run's folder and write the buffered messages."""
        self.path = folder / NAME
        try:
            self._file = open(  # noqa: SIM115  until close()
                self.path, "a", encoding="utf-8", errors="backslashreplace", opener=no_links
            )
        except OSError:
            self._lost = True
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._write(line)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message of this thread's run; runs in other threads have logs of their own."""
        if _current.get() in (None, self):
            self.note(one_line(record.getMessage()), record.created)

    def note(self, text: str, created: float | None = None) -> None:
        """Write a text with the time of day before its first line; further lines are indented.

        So a text of a candidate cannot look like a message of the run.
        """
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
        line = "\n  ".join(visible(f"{stamp} {text.strip()}").split("\n")) + "\n"
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
            self._file.flush()  # so that the message is there even if the process is killed
        except (OSError, ValueError):
            self._lost = True


@contextmanager
def run_log() -> Iterator[RunLog]:
    """Log the messages inside the block; ``open`` is called when the run's folder exists.

    An exception that leaves the block is logged, too. Runs in several threads have a log each.
    """
    log = RunLog()
    token = _current.set(log)
    try:
        with listening(log), counted_prints(Prints(show_print, log.note)):
            yield log
    except BaseException as error:
        # a mistake of the user needs no traceback
        expected = isinstance(error, (UserError, KeyboardInterrupt))
        log.note((str(error) or type(error).__name__) if expected else traceback.format_exc())
        raise
    finally:
        _current.reset(token)
        log.close()


def note(text: str) -> None:
    """Write a text to this thread's run.log only, for information that is shown in another form, such as a table."""
    log = _current.get()
    if log is not None:
        log.note(text)


class Prints:
    """The prints of candidates: the first lines are shown, MOST_LOGGED further ones kept, and the others left out.

    Args:
        show, keep: take a text of whole lines, for the screen and for run.log.
    """

    def __init__(self, show: Callable[[str], None], keep: Callable[[str], None]) -> None:
        self._show, self._keep = show, keep
        self._lines: Counter[str] = Counter()  # the number of lines that each candidate has printed

    def add(self, name: str, text: str) -> None:
        """Add a text that a candidate printed."""
        before = self._lines[name]
        if before > MOST_PRINTED + MOST_LOGGED:
            return
        lines = [f"{name} prints: {one_line(line, WIDEST)}" for line in text.split("\n")]
        if text.endswith("\n"):
            del lines[-1]
        self._lines[name] += len(lines)
        # the first lines are shown, the next are kept in the log, and the rest is counted
        on_screen = lines[: max(0, MOST_PRINTED - before)]
        in_log = lines[len(on_screen) : max(0, MOST_PRINTED + MOST_LOGGED - before)]
        if before <= MOST_PRINTED < self._lines[name]:
            on_screen.append(f"{name} prints more, which is in {NAME}")
        if on_screen:
            self._show("\n".join(on_screen))
        if in_log:
            self._keep("\n".join(in_log))
        if self._lines[name] > MOST_PRINTED + MOST_LOGGED:
            self._keep(f"{name} prints more, which is left out")


def show_print(text: str) -> None:
    """Show what a candidate printed."""
    print(text)


@contextmanager
def counted_prints(prints: Prints) -> Iterator[None]:
    """Give the prints of this thread's candidates to ``prints``."""
    token = _prints.set(prints)
    try:
        yield
    finally:
        _prints.reset(token)


def printer(name: str) -> Callable[..., None]:
    """Return the ``print`` of a candidate, see ``Prints``; outside of runs it prints."""

    def candidate_print(*values: object, file: IO[str] | None = None, **how: Any) -> None:
        prints = _prints.get()
        if file is not None or prints is None:
            print(*values, file=file, **how)
            return
        text = io.StringIO()
        print(*values, file=text, **how)
        prints.add(name, text.getvalue())

    return candidate_print


def log_path() -> Path | None:
    """Return the log file of this thread's run; None before it is open."""
    log = _current.get()
    return None if log is None else log.path


@contextmanager
def listening(handler: logging.Handler) -> Iterator[None]:
    """Give a handler the messages of this project inside the block, and the warnings that Python captures."""
    global _open, _level
    with _lock:
        package = logging.getLogger(LOGGERS[0])
        if not _open:
            _level = package.level
            if package.getEffectiveLevel() > logging.INFO:
                package.setLevel(logging.INFO)
        _open += 1
        for name in LOGGERS:
            logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        with _lock:
            for name in LOGGERS:
                logging.getLogger(name).removeHandler(handler)
            _open -= 1
            if not _open:
                logging.getLogger(LOGGERS[0]).setLevel(_level)


_muted: ContextVar[bool] = ContextVar("muted", default=False)


@contextmanager
def muted() -> Iterator[None]:
    """Suppress this thread's messages and warnings inside the block."""
    token = _muted.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _muted.reset(token)


def is_muted() -> bool:
    """Return whether this thread is in a ``muted`` block; log handlers that write for people check it."""
    return _muted.get()


SHOWN = 3  # most places (FILE:LINE) that are named for warnings of one kind

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
        text = one_line(record.getMessage())
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
            self._show(join_repeats(texts, self._log))


def flush_messages() -> None:
    """Show the warnings so far; call it before work that takes long."""
    for handler in logging.getLogger(LOGGERS[0]).handlers:
        handler.flush()


def kind(text: str) -> str:
    """Return a warning without the parts that differ between warnings of one kind: place, names and numbers."""
    return _OWN.sub("#", _PLACE.sub("", text, count=1))


def join_repeats(texts: list[str], log: Path | None = None) -> str:
    """Join warnings of one kind into one line, with their count and the first places; ``log`` has all warnings."""
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
