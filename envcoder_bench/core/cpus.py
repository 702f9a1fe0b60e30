"""The number of usable CPU cores."""

import os

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
