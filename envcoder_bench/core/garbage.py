"""Pauses of Python's garbage collection."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Iterator


@contextmanager
def collection_paused() -> Iterator[None]:
    """Do not look for reference cycles within.

    For captures of CUDA graphs, which fail if the collector frees another graph meanwhile, and for code that makes
    many long-lived objects, which it would visit again and again.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
