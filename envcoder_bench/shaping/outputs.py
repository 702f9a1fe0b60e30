"""Validation of return values: cheap tests at every call, and precise messages if one fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

from envcoder_bench.core.errors import near_matches
from envcoder_bench.shaping.faults import BadReturn
from envcoder_bench.shaping.kinds import ANY, VALUE, Kind, Part

if TYPE_CHECKING:
    from typing import TypeGuard

Shape = tuple[int, ...]
MAX_NAME = 200  # characters of a component's name
TOTAL = "total reward"  # the reward itself among its components in the results


def floating(value: object, shape: Shape, on_cuda: bool, what: str = "") -> Tensor:
    """Return ``value`` if it is a floating-point tensor of ``shape``; ``what`` names a part of the result."""
    if _is_plain(value) and value.shape == shape and value.is_floating_point() and _has_numbers(value, on_cuda):
        return value
    raise _bad_return(value, shape, on_cuda, what)


def real(value: object, shape: Shape, on_cuda: bool, what: str = "") -> Tensor:
    """Return ``value`` if it is a tensor of ``shape`` of bools, integers or floating-point numbers."""
    if _is_plain(value) and value.shape == shape and _has_numbers(value, on_cuda) and not value.is_complex():
        return value
    raise _bad_return(value, shape, on_cuda, what)


def _bad_return(value: object, shape: Shape, on_cuda: bool, what: str) -> BadReturn:
    got = tuple(value.shape) if isinstance(value, Tensor) else ()
    return BadReturn(_complaint(value, shape, on_cuda, what), got, shape)


def returned(
    kind: Kind, value: object, parts: Mapping[str, Part], n: int, on_cuda: bool
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Validate a function's return value for ``n`` environments; return its tensors by part, and its components.

    Args:
        parts: as ``Kind.parts`` returns them, or of narrower shapes.

    Raises:
        BadReturn: the value is not valid for the kind.
    """
    if kind.shape is None:
        return _some(value, parts, n, on_cuda), {}
    (shape, must_float), named, what = parts[VALUE], {}, ""
    if kind.components and isinstance(value, (tuple, list)):
        value, named = _pair(value, kind, n)
        what = kind.noun
    if shape == (ANY,):
        shape = (_width(value, kind, n),)
    tensor = (floating if must_float else real)(value, (n, *shape), on_cuda, what)
    components = {str(name): _component(x, n, on_cuda, f"component {name!r}") for name, x in named.items()}
    return {VALUE: tensor}, components


def _pair(value: tuple | list, kind: Kind, n: int) -> tuple[object, dict]:
    if len(value) != 2 or not isinstance(value[1], dict):
        kinds = ", ".join(_kind(part) for part in value)
        wanted = f"{kind.noun} ({n},), or the pair ({kind.stage}, {{name: component}})"
        raise BadReturn(f"returned ({kinds}); return {wanted}")
    for name in value[1]:
        text = str(name)
        # it names a column of tables and files
        if not text.strip() or not text.isprintable() or len(text) > MAX_NAME:
            message = f"give it one of up to {MAX_NAME} printable characters"
            raise BadReturn(f"returned a component with the name {text[:MAX_NAME]!r}: {message}")
        if name == TOTAL:
            raise BadReturn(f"returned a component with the name {name!r}, the reward itself in the results: rename it")
    return value[0], value[1]


def _component(value: object, n: int, on_cuda: bool, what: str) -> Tensor:
    """Return ``value`` as ``(n,)``; a single number, as in some published rewards, is expanded to all environments."""
    if isinstance(value, (bool, int, float)) or (_is_plain(value) and _has_numbers(value, False) and value.dim() == 0):
        return torch.full((n,), float(value), device="cuda" if on_cuda else "cpu")
    if _is_plain(value) and _has_numbers(value, on_cuda) and value.dim() == 0:
        return value.expand(n)
    return real(value, (n,), on_cuda, what)


def _width(value: object, kind: Kind, n: int) -> int:
    """Return the width k of a tensor ``(n, k)``, k at least 1."""
    width = value.shape[1] if isinstance(value, Tensor) and value.dim() == 2 else 0
    if width < 1:
        value_text = f"shape {_shape(value)}" if isinstance(value, Tensor) else _kind(value)
        raise BadReturn(
            f"returned {value_text}; {kind.noun} is a tensor ({n}, k), any k: join parts with torch.cat(parts, dim=-1),"
            " those of one number each after x.unsqueeze(-1)"
        )
    return width


def _some(value: object, parts: Mapping[str, Part], n: int, on_cuda: bool) -> dict[str, Tensor]:
    """Validate a dict with some of the keys of ``parts``."""
    if not parts:
        raise BadReturn("the task has nothing to set here: remove the function")
    if not isinstance(value, dict):
        raise BadReturn(f"returned {_kind(value)}; return a dict of some of {', '.join(parts)}")
    value = dict(value)  # a subclass could give other tensors to each reader
    if not value:
        raise BadReturn(f"returned an empty dict; return some of {', '.join(parts)}, or remove the function")
    for key, part in value.items():
        if key not in parts:
            near = near_matches(str(key), parts)
            raise BadReturn(f"returned the key {key!r}{near}; return some of {', '.join(parts)}")
        shape, must_float = parts[key]
        (floating if must_float else real)(part, (n, *shape), on_cuda, repr(key))
    return value


def require_finite(value: Tensor, what: str = "") -> None:
    """Raise BadReturn if ``value`` holds NaN or infinity."""
    count = int((~torch.isfinite(value)).sum())
    if count:
        raise BadReturn(not_finite(count, value.numel(), what), not_finite=True)


def not_finite(count: int, total: int, what: str = "") -> str:
    """Return the message for a result with numbers that are not finite."""
    return f"returned {what + ' with ' if what else ''}NaN or infinity in {count} of {total} values"


def _is_plain(value: object) -> TypeGuard[Tensor]:
    """Return whether ``value`` is a plain tensor: methods of a subclass would be called with our buffers."""
    return type(value) is Tensor or type(value) is Parameter


def _has_numbers(value: Tensor, on_cuda: bool) -> bool:
    """Return whether a tensor holds all of its numbers, on the device of the state."""
    return value.is_cuda == on_cuda and value.layout == torch.strided and not value.is_meta


def _complaint(value: object, shape: Shape, on_cuda: bool, what: str) -> str:
    start = f"returned {what} as" if what else "returned"
    if not isinstance(value, Tensor):
        return f"{start} {_kind(value)}; it must be a tensor of shape {shape}"
    if not _is_plain(value):
        return f"{start} a {type(value).__name__}; it must be a plain tensor: add .as_subclass(torch.Tensor)"
    if value.shape != shape:
        hint = _shape_hint(tuple(value.shape), shape)
        return f"{start} shape {_shape(value)}; it must be {shape}{': ' + hint if hint else ''}"
    if value.layout != torch.strided:
        return f"{start} a tensor of the layout {value.layout}; it must hold all numbers: add .to_dense()"
    if value.is_cuda != on_cuda or value.is_meta:
        right = "cuda" if on_cuda else "cpu"
        return f"{start} a tensor on {value.device}; it must be on {right}: make new tensors with device=x.device"
    return f"{start} {value.dtype}; it must be floating point: add .float()"


def _shape_hint(got: Shape, want: Shape) -> str:
    if len(want) == 1 and len(got) == 2 and got[0] == want[0] and got[1] in (1, got[0]):
        return ""  # its remedy depends on the text of the function
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
