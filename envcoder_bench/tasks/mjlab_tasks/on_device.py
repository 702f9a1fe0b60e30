"""Indexing and constants that torch would copy from the host, which waits for the device and cannot be captured."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from envcoder_bench.compat.torch_subclass import Marked, marked
from envcoder_bench.core.errors import UserError

_MAKERS = {torch.tensor, torch.as_tensor}
_INDEXING = {Tensor.__getitem__, Tensor.__setitem__}
_ANY = {Tensor.any, torch.any}


class _Chosen(Marked):
    """``x[mask]`` with all rows of x, for ``y[mask] = x[mask]``."""

    mask: Tensor


class Perhaps(Marked):
    """The result of ``mask.any()`` on a device: taken as True, since what follows is masked. No sync."""


class OnDevice(TorchFunctionMode):
    """Keep lists of indices, and constants made of numbers, on the device.

    Args:
        masked: whether ``if mask.any():`` guards what is masked anyway, and ``x[mask]`` only goes to ``y[mask] = ...``.
    """

    def __init__(self, constants: dict[Any, Tensor], masked: bool = False) -> None:
        super().__init__()
        self._constants, self._masked = constants, masked

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _INDEXING:
            return self._indexed(func, *args)
        if func in _MAKERS and not isinstance(args[0], Tensor):
            return self._made(func, args, kwargs)
        if self._masked and func in _ANY and len(args) == 1 and not kwargs and args[0].dtype == torch.bool:
            return marked(Perhaps, func(*args))
        if func is Tensor.__bool__ and isinstance(args[0], Perhaps):
            return True
        if any(isinstance(x, _Chosen) for x in args):
            raise UserError(f"{getattr(func, '__name__', func)} of x[mask] has no fixed shape")
        return func(*args, **kwargs)

    def _made(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        try:
            key = (func, repr(args), tuple(sorted((name, str(x)) for name, x in kwargs.items())))
            plain = _plain(args[0])
        except TypeError:
            plain = False
        if not plain:
            return func(*args, **kwargs)
        if key not in self._constants:
            self._constants[key] = func(*args, **kwargs)
        return self._constants[key].clone()

    def _indexed(self, func: Any, x: Tensor, index: Any, value: Any = None) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        mask = parts[0]
        if self._masked and len(parts) == 1 and isinstance(mask, Tensor) and mask.dtype == torch.bool:
            if func is Tensor.__getitem__:
                result = marked(_Chosen, x)
                result.mask = mask
                return result
            rows = mask.view(-1, *[1] * (x.dim() - 1))
            if isinstance(value, _Chosen) and value.mask is mask:
                return x.copy_(torch.where(rows, value.as_subclass(Tensor), x))
            if isinstance(value, (bool, int, float)):
                return x.masked_fill_(rows, value)
        if isinstance(index, list) or any(isinstance(part, list) for part in parts):
            parts = tuple(self._index(part, x.device) if isinstance(part, list) else part for part in parts)
            index = parts if isinstance(index, tuple) else parts[0]
        if func is Tensor.__getitem__:
            return x[index]
        if isinstance(value, (bool, int, float)) and any(isinstance(part, Tensor) for part in parts):
            value = x.new_full((), value)
        x[index] = value
        return None

    def _index(self, index: list[Any], device: torch.device) -> Any:
        if not index or not all(type(k) is int for k in index):
            return index
        key = (*index, device)
        if key not in self._constants:
            self._constants[key] = torch.tensor(index, device=device)
        return self._constants[key]


def _plain(value: Any) -> bool:
    """Return whether a value is numbers, or lists of them."""
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (bool, int, float))
