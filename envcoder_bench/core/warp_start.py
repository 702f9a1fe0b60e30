"""Warp's start without its messages. It does not import torch, so that processes that compile start quickly."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import Iterator

import warp as wp


@functools.lru_cache(maxsize=1)
def start_warp() -> None:
    """Initialize Warp; a second call does nothing."""
    wp.config.log_level = wp.LOG_WARNING  # no banner, and no message for each module it loads
    with _without_driver_warning():
        wp.init()


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
