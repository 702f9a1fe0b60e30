"""Pauses of Python's garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
