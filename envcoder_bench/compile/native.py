"""Traced programs as Warp kernels of this process: compiled, loaded, launched on torch's streams."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import warp as wp
from filelock import FileLock, Timeout  # torch's own dependency

from envcoder_bench.compile import building
from envcoder_bench.compile.cache import cache_folder
from envcoder_bench.compile.warp_kernel import BLOCK, is_built, make_kernel, target
from envcoder_bench.core.files import digest
from mujoco_batches.physics.warp_streams import warp_stream
from mujoco_batches.process import usable_cpus

WAIT, POLL = 300.0, 0.2  # seconds to wait for other processes that compile, and between two polls
MOST_CLAIMS = 512  # kernels that are claimed at once: each claim is an open file
CLAIMS = "claims"  # folder in the cache folder
_log = logging.getLogger(__name__)


# the target (see ``warp_kernel.target``) if this process compiles for another process's device, and launches nothing
FOR_TARGET: str | None = None


def build(codes: Sequence[str], device: torch.device) -> list[str]:
    """Compile kernels that are not in Warp's cache; return the error of each, or an empty text.

    Kernels that another process of this machine is compiling are left to it.
    """
    chip = FOR_TARGET or target(str(wp.device_from_torch(device)))
    errors: dict[str, str] = {}
    began = time.monotonic()
    deadline, next_report = began + WAIT, began + building.REPORT_AFTER
    missing = _missing(codes, chip)
    while missing:
        with contextlib.ExitStack() as claims:
            mine = _claim(missing, claims) if time.monotonic() < deadline else missing
            wanted = _missing(mine, chip)  # another process may have compiled them meanwhile
            if wanted:
                errors.update(zip(wanted, building.build(wanted, chip)))
        missing = _missing([code for code in missing if code not in set(mine)], chip)
        if missing and not mine:
            if time.monotonic() >= next_report:
                waited, next_report = time.monotonic() - began, next_report + building.REPORT_EVERY
                done = f"{len(set(codes)) - len(set(missing))} of {len(set(codes))} kernels done"
                _log.warning("another process compiles candidate functions, %.0f s so far: %s", waited, done)
            time.sleep(POLL)
    return [errors.get(code, "") for code in codes]


def _missing(codes: Sequence[str], target: str) -> list[str]:
    return [code for code in codes if not is_built(make_kernel(code), target)]


def _claim(codes: Sequence[str], claims: contextlib.ExitStack) -> list[str]:
    """Claim kernels that no other process has claimed, at most MOST_CLAIMS; ``claims`` releases them."""
    mine: list[str] = []
    for code in dict.fromkeys(codes):
        if len(mine) == MOST_CLAIMS:
            break
        release = take_claim(digest(code)[:32])
        if release is not None:
            claims.callback(release)
            mine.append(code)
    return mine


def load(codes: Sequence[str], device: torch.device) -> list[Any]:
    """Load compiled kernels."""
    if FOR_TARGET is not None:
        return list(codes)
    kernels = [make_kernel(code) for code in codes]
    modules = [kernel.module for kernel in kernels]
    wp.force_load(wp.device_from_torch(device), modules, block_dim=BLOCK, max_workers=usable_cpus())
    return kernels


def prepare_launch(kernel: Any, threads: int, table: torch.Tensor) -> Any:
    """Prepare a launch of a kernel over ``threads`` threads, which ``launch`` can repeat."""
    if FOR_TARGET is not None:
        return kernel
    return wp.launch(
        kernel, dim=threads, inputs=[wp.from_torch(table)], device=wp.device_from_torch(table.device),
        block_dim=BLOCK, record_cmd=True,
    )  # fmt: skip


def launch(prepared: Any, device: torch.device) -> None:
    """Launch on torch's current stream."""
    if FOR_TARGET is not None:
        raise RuntimeError("this process launches no kernels")
    prepared.launch(warp_stream(device))


def take_claim(name: str) -> Callable[[], None] | None:
    """Claim a kernel by name, so that one process of the machine compiles it.

    Returns a function that releases the claim, or None if another process has it.

    The claim of a process that dies is released. Where files cannot be locked, every claim succeeds.
    """
    path = cache_folder() / CLAIMS / f"{name}.lock"
    lock = FileLock(path, is_singleton=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        return None
    except (OSError, NotImplementedError):  # a file system without locks
        return lambda: None

    def release() -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)  # before the release, so that nobody locks a deleted file for long
        lock.release()

    return release
