"""The number of usable CPU cores."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """Return the number of cores this process may use (limited by containers and ``taskset``), or of all cores."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
