"""Triton, or None where it is not installed, and its kernels; torch for CUDA on Linux brings it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:
    triton: Any = None
    tl: Any = SimpleNamespace(constexpr=None)  # which annotates parameters of kernels


def usable_on(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the project's kernels support tensors of a device and dtype."""
    return triton is not None and device.type == "cuda" and dtype == torch.float32


class Kernel:
    """A kernel that runs on the device of its first argument; Triton would choose the current device.

    Launch it with ``kernel[grid](tensor, ...)``.
    """

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        launch = self.compiled[grid]

        def run(first: torch.Tensor, *args: Any, **options: Any) -> None:
            with torch.cuda.device_of(first):
                launch(first, *args, **options)

        return run


def jit(function: Any) -> Any:
    """Return a kernel, or the function itself without Triton."""
    return function if triton is None else Kernel(triton.jit(function))
