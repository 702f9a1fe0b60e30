"""Warp's start: without its messages, and with precompiled headers that processes share.

Replaces ``get_clang_pch_dir`` of Warp's runtime, the folder of its CPU compiler's precompiled headers, and suppresses
what Warp's C code prints where there is no CUDA driver.

Why: Warp compiles the headers anew in each process, four seconds of processor time, in a temporary folder.

Upstream: no issue was found; NVIDIA/warp issues 1649 and 1658 are about these files within a process. Issue 672
(closed) made the message about the driver shorter.

This file does not import torch, so that processes that compile start quickly.
"""

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import warp as wp

from mujoco_batches.compat import warn_once
from mujoco_batches.compat.warp_cache import check_objects


@functools.lru_cache(maxsize=1)
def start_warp() -> None:
    """Initialize Warp; a second call does nothing."""
    wp.config.log_level = wp.LOG_WARNING  # no banner, and no message for each module it loads
    with _without_driver_warning():
        wp.init()
    _share_headers()
    check_objects()


@contextlib.contextmanager
def _without_driver_warning() -> Iterator[None]:
    """Suppress the message of Warp's C code that there is no CUDA driver."""
    if Path("/proc/driver/nvidia/version").exists():
        yield
        return
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _share_headers() -> None:
    """Keep the precompiled headers of Warp's CPU compiler in Warp's cache, if it can be written."""
    try:
        from warp._src.context import runtime

        runtime.get_clang_pch_dir  # noqa: B018, in Warp 1.19
        if runtime.llvm is None:  # an installation without the CPU compiler
            return
        folder = Path(str(wp.config.kernel_cache_dir)) / "headers" / _headers_key(runtime.llvm)
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            runtime.get_clang_pch_dir = lambda: str(folder) if folder.is_dir() else None
    except OSError:
        return
    except (ImportError, AttributeError) as error:
        warn_once("Warp's runtime", str(error), "each process compiles Warp's headers, which takes seconds")


def _headers_key(compiler) -> str:
    """Return a name that changes with Warp's headers and the processor they are compiled for."""
    headers = Path(str(wp.__file__)).parent / "native"
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(headers.glob("*.h"))]
    processor = compiler.wp_get_host_cpu_name(), compiler.wp_get_host_cpu_features()
    return hashlib.sha256(repr((str(headers), stats, processor)).encode()).hexdigest()[:16]
