"""Muting of messages. The package logs to ``envcoder_bench``; work that is repeated later is muted the first time."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
