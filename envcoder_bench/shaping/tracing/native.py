"""Warp kernels around C code. Warp reads annotations as they stand, so nothing here may postpone them."""

import functools
import os
from typing import Any, Sequence

import torch
import warp as wp

wp.config.log_level = wp.LOG_WARNING  # no line for each module it loads
if torch.cuda.is_available():
    wp.init()
else:  # Warp's C code prints a warning that there is no CUDA driver
    with open(os.devnull, "w") as devnull:
        stderr = os.dup(2)
        os.dup2(devnull.fileno(), 2)
        try:
            wp.init()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)

BLOCK = 64  # threads; few, because programs use many registers and groups have few environments


@functools.lru_cache(maxsize=None)
def make_kernel(code: str) -> Any:
    """A Warp kernel that runs C ``code`` for each thread ``tid``, with an int64 array ``table``."""

    @wp.func_native(code)
    def run(tid: int, table: wp.array(dtype=wp.int64)): ...  # pyright: ignore

    # no fused multiply-add: torch rounds after every operation
    @wp.kernel(enable_backward=False, module="unique", module_options={"fuse_fp": False})
    def kernel(table: wp.array(dtype=wp.int64)):  # pyright: ignore
        run(wp.tid(), table)

    return kernel


def load(kernels: Sequence[Any], device: torch.device) -> None:
    """Compile what is not in Warp's cache, several kernels at a time, and load all."""
    modules = [kernel.module for kernel in kernels]
    wp.force_load(wp.device_from_torch(device), modules, block_dim=BLOCK, max_workers=os.cpu_count())


def prepare_launch(kernel: Any, threads: int, table: torch.Tensor) -> Any:
    """A launch of a kernel over so many threads, to be repeated with ``launch(...)`` below."""
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
