"""How many CPU cores there are to work on."""

from __future__ import annotations

import os


def usable_cpus() -> int:
    """The cores that this process may use, which a container or ``taskset`` limits; where that is unknown, all."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
