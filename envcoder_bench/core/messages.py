"""What the package has to say goes to the logger ``envcoder_bench``; work that is done again later says it then."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Iterator

_muted: ContextVar[bool] = ContextVar("muted", default=False)


@contextmanager
def muted() -> Iterator[None]:
    """Do without the messages and warnings of this thread inside the block."""
    token = _muted.set(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _muted.reset(token)


def is_muted() -> bool:
    """Whether this thread is in a ``muted`` block: for handlers of the logger that a person reads."""
    return _muted.get()
