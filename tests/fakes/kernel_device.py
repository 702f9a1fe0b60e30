"""Where tests of Triton's kernels run: on CUDA, or on the CPU where ``TRITON_INTERPRET=1`` has them interpreted."""

import os
from typing import Any

import pytest
import torch

from envcoder_bench.core.triton_import import triton

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
KERNELS = [
    pytest.mark.cuda,
    pytest.mark.kernels,
    pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a CUDA device"),
]
# keys of PPO with which the interpreter trains in seconds
FEWER: dict[str, Any] = {"horizon_length": 4, "num_minibatches": 2} if INTERPRETED else {}


def sizes(full: list[Any], small: list[Any]) -> list[Any]:
    """Return the parameters of a test; the interpreter, which takes milliseconds for a program, has small ones."""
    return small if INTERPRETED else full


def compares_kernels(test: Any) -> Any:
    """Mark a test of kernels that runs on ``DEVICE``."""
    for mark in KERNELS:
        test = mark(test)
    return test
