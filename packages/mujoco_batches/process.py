"""This process: its share of the CPU cores, and pauses of its garbage collection."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_sharers = 1  # processes that share the cores


def usable_cpus() -> int:
    """Return the number of cores this process may use (limited by containers and ``taskset``), or of all cores."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_cpus(processes: int) -> None:
    """Compile on an equal share of the cores: so many processes of this machine compile at the same time."""
    global _sharers
    _sharers = processes


def own_cpus() -> int:
    """Return this process's share of the usable cores, at least 1."""
    return max(1, usable_cpus() // _sharers)


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
