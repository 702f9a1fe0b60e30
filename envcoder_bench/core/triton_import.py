"""Triton, or None where it is not installed; it is part of torch for CUDA on Linux."""

from __future__ import annotations

from typing import Any

try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:
    triton: Any = None
    tl: Any = None


def jit(function: Any) -> Any:
    """Return a kernel, or the function itself without Triton."""
    return function if triton is None else triton.jit(function)
