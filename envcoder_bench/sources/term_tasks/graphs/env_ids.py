"""Indices of environments as masks, so that a framework's code for some environments has fixed shapes.

Its functions receive ``env_ids``, the indices of some environments, and write ``x[env_ids] = value``. How many they
are is known on the device only. Inside ``FixedShapes`` they receive an ``EnvIds`` instead: the indices of all
environments, with a mask of those that are meant. What they read and compute is of all environments, and what they
write is kept where the mask is True. ``nonzero`` of a mask of environments returns an ``EnvIds`` as well, and so does
``env_ids[mask]``. Any other use is refused by name, because it could write into environments that are not meant. On a
device the mean of ``x[mask]``, which a curriculum logs, waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from envcoder_bench.compat.torch_subclass import Marked, marked
from envcoder_bench.core.errors import UserError
from envcoder_bench.sources.term_tasks.graphs.on_device import Chosen, Perhaps

_SEARCHES = ("nonzero", "argwhere")  # names, because ``drawing`` replaces the functions
_SHAPES = (Tensor.flatten, torch.flatten, Tensor.squeeze, torch.squeeze, Tensor.unsqueeze, Tensor.view, Tensor.reshape)
_CASTS = (Tensor.to, Tensor.long, Tensor.int, Tensor.clone, Tensor.contiguous, Tensor.detach)
_KEEPING = {*_SHAPES, *_CASTS}  # functions whose result has the same elements
_COPIES = {Tensor.cpu, Tensor.tolist, Tensor.numpy, Tensor.item}
_ANY = {Tensor.any, torch.any}
_MEANS = {Tensor.mean, torch.mean}


class EnvIds(Marked):
    """The indices of all environments ``(n,)``, or a view of them, and the mask ``(n,)`` of those that are meant."""

    mask: Tensor

    @classmethod
    def of(cls, mask: Tensor, ids: Tensor | None = None) -> EnvIds:
        """Return the environments where ``mask`` ``(n,)`` is True; ``ids`` are the indices in another shape."""
        ids = torch.arange(len(mask), device=mask.device) if ids is None else ids
        result = marked(cls, ids)
        result.mask = mask
        return result


class Meant(Marked):
    """``x[env_ids]`` with all rows of x, of which a mean is that of the environments that are meant."""

    mask: Tensor


class FixedShapes(TorchFunctionMode):
    """Give code inside the ``with`` block masks instead of indices of environments.

    Args:
        rows: the number of environments.
        name: what the code is, for messages; a caller may change it.

    Attributes:
        only: ``(rows,)`` bool, those that masks of environments may mean; None: all.
    """

    only: Tensor | None = None
    asks = True  # a CPU whether a mask has any True; what follows is masked

    def __init__(self, rows: int, name: str = "") -> None:
        super().__init__()
        self.rows, self.name = rows, name

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _plain:
            return func(*args, **kwargs)
        if func is Tensor.__setitem__:
            return self._write(*args)
        if func is Tensor.__getitem__ and isinstance(args[0], EnvIds):
            return self._chosen(*args)
        if func is Tensor.__getitem__ and self._is_mask(args[1]) and (args[0].is_cuda or not self.asks):
            rows = marked(Chosen, args[0])
            rows.mask = args[1]
            return rows
        if func in _MEANS and len(args) == 1 and not kwargs and isinstance(args[0], (Chosen, Meant)):
            return _mean(args[0].as_subclass(Tensor), args[0].mask)
        if any(isinstance(x, Chosen) for x in args):
            args = tuple(x.as_subclass(Tensor)[x.mask] if isinstance(x, Chosen) else x for x in args)
        name = getattr(func, "__name__", "")
        if name in _SEARCHES and self._is_mask(args[0]):
            ids = EnvIds.of(self._meant(args[0]))
            if kwargs.get("as_tuple", False):
                return (ids,)
            return EnvIds.of(ids.mask, ids.as_subclass(Tensor).unsqueeze(1))
        if name == "where" and len(args) == 1 and not kwargs and self._is_mask(args[0]):
            return (EnvIds.of(self._meant(args[0])),)
        if func in _ANY and len(args) == 1 and not kwargs and self._is_mask(args[0]):
            return func(*args) if self.asks and not args[0].is_cuda else marked(Perhaps, func(*args))
        if func is Tensor.__bool__ and isinstance(args[0], Perhaps):
            return True
        if func is torch.meshgrid and isinstance(args[0], EnvIds):
            first, *others = func(args[0].as_subclass(Tensor), *args[1:], **kwargs)
            return (EnvIds.of(args[0].mask, first), *others)
        ids = next((x for x in args if isinstance(x, EnvIds)), None)
        return func(*args, **kwargs) if ids is None else self._other(func, ids, args, kwargs)

    def _is_mask(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype == torch.bool and x.dim() == 1 and x.shape[0] == self.rows

    def _meant(self, mask: Tensor) -> Tensor:
        return mask if self.only is None else mask & self.only

    def _chosen(self, ids: EnvIds, index: Any) -> Any:
        """Index an EnvIds: by a mask, or to add axes."""
        if self._is_mask(index):
            return EnvIds.of(ids.mask & index, ids.as_subclass(Tensor))
        if all(part is None or part == slice(None) for part in (index if isinstance(index, tuple) else (index,))):
            return EnvIds.of(ids.mask, ids.as_subclass(Tensor)[index])
        raise self._refusal(f"env_ids[{index!r}]")

    def _write(self, x: Tensor, index: Any, value: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        axis = next((k for k, part in enumerate(parts) if isinstance(part, EnvIds)), None)
        if axis is None:
            x[index] = value
            return
        ids = parts[axis]
        if axis == 0 and ids.dim() == 1 and all(type(part) in (int, slice) for part in parts[1:]):
            rows = x[(slice(None), *parts[1:])]
            mask = ids.mask.view(-1, *[1] * (rows.dim() - 1))
            if isinstance(value, (bool, int)) or (isinstance(value, float) and x.is_floating_point()):
                # filled in, because indexing would copy the number to the device and wait for it
                rows.masked_fill_(mask, value)
                return
            if isinstance(value, Tensor) and value.dim() <= rows.dim():
                rows.copy_(torch.where(mask, value, rows))
                return
        plain = tuple(part.as_subclass(Tensor) if isinstance(part, EnvIds) else part for part in parts)
        new = x.clone()
        new[plain] = value
        mask = ids.mask.view(*[1] * axis, -1, *[1] * (x.dim() - axis - 1))
        x.copy_(torch.where(mask, new, x))

    def _other(self, func: Callable[..., Any], ids: EnvIds, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func in _KEEPING or (func is Tensor.cpu and not ids.is_cuda):
            return EnvIds.of(ids.mask, func(*args, **kwargs).as_subclass(Tensor))
        name = getattr(func, "__name__", str(func))
        in_place = name.endswith("_") and not name.endswith("__")
        result = None if in_place else func(*args, **kwargs)
        parts = result if isinstance(result, (tuple, list)) else (result,)
        indices = any(isinstance(x, Tensor) and not x.is_floating_point() and x.dtype != torch.bool for x in parts)
        if func is Tensor.__getitem__ and args[1] is ids and ids.dim() == 1 and isinstance(result, Tensor):
            meant = marked(Meant, result)
            meant.mask = ids.mask
            return meant
        if func is not Tensor.__getitem__ and (in_place or indices or func in _COPIES):
            raise self._refusal(name)
        return result

    def _refusal(self, what: str) -> UserError:
        return UserError(
            f"{self.name} calls {what} on the indices of environments, which has no fixed shape: index tensors with"
            " env_ids, or with env_ids[mask]"
        )


_plain: list[None] = []


@contextmanager
def plain_indices() -> Iterator[None]:
    """Let code inside the block find plain indices, also within ``FixedShapes``."""
    _plain.append(None)
    try:
        yield
    finally:
        _plain.pop()


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of ``x[mask]``."""
    rows = mask.view(-1, *[1] * (x.dim() - 1)).expand_as(x)
    return torch.where(rows, x, 0.0).sum() / rows.sum()
