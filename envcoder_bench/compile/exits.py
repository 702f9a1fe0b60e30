"""Interception of what takes a tensor's numbers or size to Python without an operator."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from envcoder_bench import torch_utils

CALLERS = ("apply_", "map_", "map2_")
_EXITS = {getattr(Tensor, name): name for name in ("numpy", "tolist", "__array__", "__dlpack__", *CALLERS)}
_SIZES = {
    *(getattr(Tensor, name) for name in ("size", "__len__", "numel", "nelement", "stride", "__iter__", "__repr__")),
    *(getattr(Tensor, name).__get__ for name in ("shape", "nbytes")),
    torch.numel,
}


class Exits(TorchFunctionMode):
    """Reports methods that give a tensor's numbers or size to Python without an operator.

    Args:
        numbers: called with a tensor and the name of a method that gives its numbers.
        size: called where a tensor is asked for its size.
    """

    def __init__(self, numbers: Callable[[Tensor, str], None], size: Callable[[], None]) -> None:
        super().__init__()
        self._numbers, self._size = numbers, size
        self.depth = 0  # of nested calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _EXITS:
            self._numbers(args[0], _EXITS[func])
        elif func in _SIZES and sys._getframe(1).f_code.co_filename != _HELPERS:
            self._size()
        self.depth += 1
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.depth -= 1


_HELPERS = torch_utils.__file__  # these functions use sizes only as shapes
