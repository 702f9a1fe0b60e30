"""What a function may return: cheap tests at every call, and exact words where one fails."""

from __future__ import annotations

from typing import Iterable, Tuple

import torch
from torch import Tensor

from envcoder_bench.core.errors import near_matches
from envcoder_bench.shaping.faults import BadReturn

Shape = Tuple[int, ...]


def floating(value: object, shape: Shape, on_cuda: bool, what: str = "") -> Tensor:
    """Return ``value`` if it is a floating-point tensor of ``shape``; ``what`` names a part of the result."""
    if isinstance(value, Tensor) and value.shape == shape and value.is_floating_point() and value.is_cuda == on_cuda:
        return value
    raise BadReturn(_complaint(value, shape, on_cuda, what))


def real(value: object, shape: Shape, on_cuda: bool, what: str = "") -> Tensor:
    """Return ``value`` if it is a tensor of ``shape`` of bools, integers or floating-point numbers."""
    if isinstance(value, Tensor) and value.shape == shape and value.is_cuda == on_cuda and not value.is_complex():
        return value
    raise BadReturn(_complaint(value, shape, on_cuda, what))


def reward(value: object, n: int, on_cuda: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Split what ``compute_reward`` returned into the reward ``(n,)`` and its components, each ``(n,)``."""
    if not isinstance(value, (tuple, list)):
        return floating(value, (n,), on_cuda), {}
    if len(value) != 2 or not isinstance(value[1], dict):
        parts = ", ".join(_kind(part) for part in value)
        raise BadReturn(f"returned ({parts}); return the reward ({n},), or the pair (reward, {{name: component}})")
    total = floating(value[0], (n,), on_cuda, "the reward")
    return total, {str(name): _component(part, n, on_cuda, f"component {name!r}") for name, part in value[1].items()}


def _component(value: object, n: int, on_cuda: bool, what: str) -> Tensor:
    """Return ``value`` as ``(n,)``; a single number, as published rewards report them, counts for all environments."""
    if isinstance(value, (bool, int, float)) or (isinstance(value, Tensor) and not value.is_cuda and value.dim() == 0):
        return torch.full((n,), float(value), device="cuda" if on_cuda else "cpu")
    if isinstance(value, Tensor) and value.dim() == 0:
        return value.expand(n)
    return real(value, (n,), on_cuda, what)


def observation(value: object, n: int, on_cuda: bool) -> Tensor:
    """Return ``value`` if it is an observation of any width: ``(n, k)``, k at least 1."""
    width = value.shape[1] if isinstance(value, Tensor) and value.dim() == 2 else 0
    if width < 1:
        shown = f"shape {_shape(value)}" if isinstance(value, Tensor) else _kind(value)
        raise BadReturn(
            f"returned {shown}; an observation is a tensor ({n}, obs_dim): join parts with torch.cat(parts, dim=-1), "
            "those of one number each after x.unsqueeze(-1)"
        )
    return floating(value, (n, width), on_cuda)


def parts(value: object, shapes: dict[str, Tensor], n: int, on_cuda: bool) -> dict[str, Tensor]:
    """Check a dict of some of the keys of ``shapes``, whose values are examples of shape and kind of number."""
    if not isinstance(value, dict):
        raise BadReturn(f"returned {_kind(value)}; return a dict of some of {_listed(shapes)}")
    if not value:
        raise BadReturn(f"returned an empty dict; return some of {_listed(shapes)}, or remove the function")
    for key, part in value.items():
        if key not in shapes:
            near = near_matches(str(key), shapes)
            raise BadReturn(f"returned the key {key!r}{near}; return some of {_listed(shapes)}")
        like = shapes[key]
        kind = floating if like.is_floating_point() else real
        kind(part, (n, *like.shape[1:]), on_cuda, repr(key))
    return value


def require_finite(value: Tensor, what: str = "") -> None:
    """Raise BadReturn if ``value`` holds NaN or infinity."""
    count = int((~torch.isfinite(value)).sum())
    if count:
        raise BadReturn(not_finite(count, value.numel(), what))


def not_finite(count: int, total: int, what: str = "") -> str:
    """Say how many of a result's numbers are not finite."""
    return f"returned {what + ' with ' if what else ''}NaN or infinity in {count} of {total} values"


def _complaint(value: object, shape: Shape, on_cuda: bool, what: str) -> str:
    start = f"returned {what} as" if what else "returned"
    if not isinstance(value, Tensor):
        return f"{start} {_kind(value)}; it must be a tensor of shape {shape}"
    if value.shape != shape:
        hint = _shape_hint(tuple(value.shape), shape)
        return f"{start} shape {_shape(value)}; it must be {shape}{': ' + hint if hint else ''}"
    if value.is_cuda != on_cuda:
        right = "cuda" if on_cuda else "cpu"
        return f"{start} a tensor on {value.device}; it must be on {right}: make new tensors with device=x.device"
    return f"{start} {value.dtype}; it must be floating point: add .float()"


def _shape_hint(got: Shape, want: Shape) -> str:
    if len(want) == 1 and got == (*want, 1):
        return "squeeze it with .squeeze(-1)"
    if len(want) == 1 and got == (1, *want):
        return "squeeze it with .squeeze(0)"
    if len(want) == 1 and len(got) == 2 and got[0] == want[0]:
        return "reduce the last axis, e.g. with .sum(dim=-1)"
    if len(want) == 1 and got in ((), (1,)):
        return "one number per environment, so reduce with dim=-1"
    if got == want[1:]:
        return f"one row per environment, so expand it with .expand({', '.join(map(str, want))})"
    if len(got) == len(want) and got[0] != want[0]:
        return f"the first axis is the {want[0]} environments"
    return ""


def _kind(value: object) -> str:
    if value is None:
        return "None (is a return missing?)"
    return f"a tensor {_shape(value)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _shape(value: Tensor) -> str:
    return str(tuple(value.shape))


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(keys) or "no key (the task has none)"
