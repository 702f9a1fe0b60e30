"""In place of ``native`` in a process that compiles kernels for another process's device, and launches none."""

from collections.abc import Sequence
from typing import Any

import torch

from envcoder_bench.compile import native

TARGET = "cpu"  # of the kernels, as ``warp_kernel.target`` gives it


def build(codes: Sequence[str], device: torch.device) -> list[str]:
    """Compile kernels into Warp's cache; return the error of each, or an empty text."""
    return native.build_for(codes, TARGET)


def load(codes: Sequence[str], device: torch.device) -> list[Any]:
    return list(codes)


def prepare_launch(kernel: Any, threads: int, table: torch.Tensor) -> Any:
    return kernel


def launch(prepared: Any, device: torch.device) -> None:
    raise RuntimeError("this process launches no kernels")
