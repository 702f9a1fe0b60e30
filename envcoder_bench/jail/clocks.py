"""Clocks of the jail: the same for every file, so that no program has the time of day among its numbers.

They tick at each reading. Set ahead, they show which results depend on them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_START, _TICK, _AHEAD = 1_700_000_000.0, 0.001, 1_234_567_891.23  # s
_NAMES = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
_now = _START


def install() -> None:
    """Replace the clocks of Python's module ``time``, as files see it."""
    calendar = {name: getattr(time, name) for name in ("localtime", "gmtime", "ctime")}
    for name in _NAMES:
        setattr(time, name, _seconds)
        setattr(time, f"{name}_ns", lambda *_: int(_seconds() * 1e9))
    for name, convert in calendar.items():
        setattr(time, name, lambda seconds=None, convert=convert: convert(_START if seconds is None else seconds))


def start() -> None:
    """Set the clocks to their first time."""
    global _now
    _now = _START


@contextmanager
def ahead() -> Iterator[None]:
    """Set the clocks ahead for a while."""
    global _now
    _now += _AHEAD
    try:
        yield
    finally:
        _now -= _AHEAD


def _seconds(*_: object) -> float:
    global _now
    _now += _TICK
    return _now
