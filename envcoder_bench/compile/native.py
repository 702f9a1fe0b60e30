"""Traced programs as Warp kernels of this process: compiled, loaded, launched on torch's streams."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Iterator, Sequence

import torch
import warp as wp
from filelock import FileLock, Timeout  # torch's own dependency

from envcoder_bench.compile import building
from envcoder_bench.compile.cache import cache_folder
from envcoder_bench.compile.warp_kernel import BLOCK, is_built, make_kernel, target
from envcoder_bench.core.cpus import usable_cpus

WAIT = 300.0  # seconds for another process that compiles


def build(codes: Sequence[str], device: torch.device) -> list[str]:
    """Compile kernels that are not in Warp's cache; return the error of each, or an empty text."""
    own = str(wp.device_from_torch(device))
    missing = _missing(codes, own)
    errors: dict[str, str] = {}
    if missing:
        with _alone():  # of several processes, each kernel is compiled by one
            missing = _missing(missing, own)
            errors = dict(zip(missing, building.build(missing, target(own)))) if missing else {}
    return [errors.get(code, "") for code in codes]


def _missing(codes: Sequence[str], device: str) -> list[str]:
    return [code for code in codes if not is_built(make_kernel(code), device)]


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes of this machine from compiling; one that hangs is not waited for longer than a while."""
    path = cache_folder() / "compiling.lock"
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=WAIT)
    except (OSError, Timeout):
        yield
        return
    try:
        yield
    finally:
        lock.release()


def load(codes: Sequence[str], device: torch.device) -> list[Any]:
    """Load compiled kernels."""
    kernels = [make_kernel(code) for code in codes]
    modules = [kernel.module for kernel in kernels]
    wp.force_load(wp.device_from_torch(device), modules, block_dim=BLOCK, max_workers=usable_cpus())
    return kernels


def prepare_launch(kernel: Any, threads: int, table: torch.Tensor) -> Any:
    """Prepare a launch of a kernel over ``threads`` threads, which ``launch`` can repeat."""
    return wp.launch(
        kernel, dim=threads, inputs=[wp.from_torch(table)], device=wp.device_from_torch(table.device),
        block_dim=BLOCK, record_cmd=True,
    )  # fmt: skip


def launch(prepared: Any, device: torch.device) -> None:
    """Launch on torch's current stream."""
    if device.type == "cpu":
        prepared.launch()
    else:
        prepared.launch(_stream(torch.cuda.current_stream(device).cuda_stream, device))


@functools.lru_cache(maxsize=None)
def _stream(handle: int, device: torch.device) -> Any:
    return wp.Stream(wp.device_from_torch(device), cuda_stream=handle)
