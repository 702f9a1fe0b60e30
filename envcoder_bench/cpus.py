"""How many processors this process may use: a container often has fewer than the machine."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """Processors that this process may run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
