"""Claims of the processes of a machine on kernels, so that each is compiled by one of them."""

import contextlib
import os
from collections.abc import Callable

from filelock import FileLock, Timeout  # torch's own dependency

from envcoder_bench.compile.cache import cache_folder

FOLDER = "claims"  # in the cache folder


def take(name: str) -> Callable[[], None] | None:
    """Claim a name; return a function that releases it, or None if another process has it.

    The claim of a process that dies is released. Where files cannot be locked, every claim succeeds.
    """
    path = cache_folder() / FOLDER / f"{name}.lock"
    lock = FileLock(path, is_singleton=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except (OSError, NotImplementedError):  # the latter: a file system without locks
        return lambda: None

    def release() -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)  # while it is locked: who waits for it looks again
        lock.release()

    return release
