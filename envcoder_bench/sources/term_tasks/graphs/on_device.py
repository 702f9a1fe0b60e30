"""Indexing and constants that torch would copy from the host, which waits for the device and cannot be captured."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from envcoder_bench.compat.torch_subclass import Marked, marked
from envcoder_bench.core.errors import UserError

_MAKERS = {torch.tensor, torch.as_tensor}
_INDEXING = {Tensor.__getitem__, Tensor.__setitem__}
_ANY = {Tensor.any, torch.any}


class Chosen(Marked):
    """``x[mask]`` with all rows of x, for ``y[mask] = x[mask]`` and means."""

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
        if func is torch.linalg.eigh and args[0].shape[-2:] == (3, 3) and not kwargs:
            return torch.return_types.linalg_eigh(eigh_3x3(args[0]))  # pyright: ignore[reportAttributeAccessIssue]
        if any(isinstance(x, Chosen) for x in args):
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
                result = marked(Chosen, x)
                result.mask = mask
                return result
            rows = mask.view(-1, *[1] * (x.dim() - 1))
            if isinstance(value, Chosen) and value.mask is mask:
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


def eigh_3x3(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of symmetric matrices ``(..., 3, 3)``, as ``torch.linalg.eigh``, no sync.

    The eigenvalues are the roots of the characteristic polynomial by their trigonometric form (Smith, Communications of
    the ACM 4(4), 1961), and eigenvectors are cross products of rows of ``x - value``. Computed in float64.
    """
    a, eye = x.double(), torch.eye(3, dtype=torch.float64, device=x.device)
    mean = a.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    rest = a - mean[..., None, None] * eye
    spread = (rest.square().sum(dim=(-2, -1)) / 6.0).sqrt()
    scaled = rest / spread.clamp(min=1e-300)[..., None, None]
    determinant = (scaled[..., 0, :] * torch.linalg.cross(scaled[..., 1, :], scaled[..., 2, :])).sum(dim=-1)
    angle = torch.acos((0.5 * determinant).clamp(-1.0, 1.0)) / 3.0
    largest, least = 2.0 * torch.cos(angle), 2.0 * torch.cos(angle + 2.0 * math.pi / 3.0)
    values = torch.stack((least, -least - largest, largest), dim=-1)

    def vector(value: Tensor, default: Tensor) -> Tensor:
        rows = scaled - value[..., None, None] * eye
        normals = torch.linalg.cross(rows, rows.roll(1, dims=-2), dim=-1)
        sizes, index = normals.square().sum(dim=-1).max(dim=-1)
        longest = normals.gather(-2, index[..., None, None].expand(*index.shape, 1, 3)).squeeze(-2)
        return torch.where((sizes > 1e-20)[..., None], longest / sizes.clamp(min=1e-20).sqrt()[..., None], default)

    # the value that is farther from the other two first, which has one direction; the others span what is left
    lone = (largest + least > 0)[..., None]  # the largest
    first = vector(torch.where(lone[..., 0], largest, least), eye[0].expand((*mean.shape, 3)))
    aside = torch.linalg.cross(first, eye[first.abs().argmin(dim=-1)], dim=-1)
    aside = aside / aside.norm(dim=-1, keepdim=True)
    other = vector(torch.where(lone[..., 0], least, largest), aside)
    other = other - (other * first).sum(dim=-1, keepdim=True) * first
    other = torch.where(other.norm(dim=-1, keepdim=True) > 0.5, other, aside)
    other = other / other.norm(dim=-1, keepdim=True)
    middle = torch.linalg.cross(first, other, dim=-1)
    columns = (torch.where(lone, other, first), middle, torch.where(lone, first, other))
    return (mean[..., None] + spread[..., None] * values).to(x.dtype), torch.stack(columns, dim=-1).to(x.dtype)


def _plain(value: Any) -> bool:
    """Return whether a value is numbers, or lists of them."""
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (bool, int, float))
