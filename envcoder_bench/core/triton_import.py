"""Triton, or None where it is not installed; it is part of torch for CUDA on Linux."""

from __future__ import annotations

from typing import Any, Callable

import torch

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:
    triton: Any = None
    tl: Any = None


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
