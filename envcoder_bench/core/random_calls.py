"""Replacement of torch's random functions in candidate code by draws from the group's stream.

Calls are intercepted as ATen operators, so that ``torch.rand``, ``torch.randn_like``, ``x.uniform_()``, ``F.dropout``,
TorchScript and ``torch.distributions`` are all covered. The numbers depend on (seed, step, purpose, lane, column) only,
and are computed by ordinary operators, which CUDA graphs can capture and the recorder can trace.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.utils._python_dispatch import TorchDispatchMode

from envcoder_bench.core import stream

Arguments = dict[str, Any]
Draw = Callable[[Sequence[int], torch.device, Arguments], Tensor]  # shape, device, the operator's arguments


def _uniform(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    low, high = a.get("from", 0.0), a.get("to", 1.0)
    drawn = stream.uniform(shape, device)
    return drawn if (low, high) == (0.0, 1.0) else drawn * (high - low) + low


def _normal(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    mean, std = a.get("mean", 0.0), a.get("std", 1.0)
    drawn = stream.normal(shape, device)
    plain = not isinstance(mean, Tensor) and not isinstance(std, Tensor) and (mean, std) == (0.0, 1.0)
    return drawn if plain else drawn * std + mean


def _integers(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    low, high = a.get("low", a.get("from")) or 0, a.get("high", a.get("to"))
    if high is None:  # random_(): all integers that the tensor can hold exactly
        kind = a["self"].dtype
        high = round(2 / torch.finfo(kind).eps) + 1 if kind.is_floating_point else torch.iinfo(kind).max
    return stream.integers(int(low), int(high), shape, device)


def _bernoulli(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    p = a.get("p", a["self"])
    return stream.uniform(shape, device) < (p.to(device) if isinstance(p, Tensor) else p)


def _exponential(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    return _waiting(shape, device) / a.get("lambd", 1.0)


def _waiting(shape: Sequence[int], device: torch.device) -> Tensor:
    """Draw standard exponential numbers; they are positive, so that their logarithm is finite."""
    return torch.clamp(-torch.log(1.0 - stream.uniform(shape, device)), min=2.0**-25)


def _geometric(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    return torch.ceil(_waiting(shape, device) / -math.log1p(-a["p"]))


def _log_normal(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    return torch.exp(stream.normal(shape, device) * a.get("std", 2.0) + a.get("mean", 1.0))


def _cauchy(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    angle = math.pi * (stream.uniform(shape, device) - 0.5)
    return a.get("median", 0.0) + a.get("sigma", 1.0) * torch.tan(angle)


def _choice(shape: Sequence[int], device: torch.device, a: Arguments) -> Tensor:
    """Draw indices with weights ``(k,)`` or ``(n, k)``, by comparing a uniform number with the cumulative weights.

    Without replacement, the indices with the largest ratio of weight to exponential number (Efraimidis and Spirakis,
    2006).
    """
    weights, count = a["self"], a["num_samples"]
    if count != 1 and not a.get("replacement", False):
        return (weights / _waiting(weights.shape, device)).topk(count, dim=-1).indices
    sums = torch.cumsum(weights.to(torch.float32), dim=-1)
    passed = stream.uniform((*weights.shape[:-1], count), device).unsqueeze(-1) * sums[..., -1:].unsqueeze(-1)
    return (sums.unsqueeze(-2) <= passed).sum(dim=-1).clamp(max=weights.shape[-1] - 1)


_DRAWS: dict[str, Draw] = {
    **dict.fromkeys(("rand", "rand_like", "uniform", "uniform_"), _uniform),
    **dict.fromkeys(("randn", "randn_like", "normal", "normal_", "normal_functional"), _normal),
    **dict.fromkeys(("randint", "randint_like", "random", "random_"), _integers),
    **dict.fromkeys(("bernoulli", "bernoulli_"), _bernoulli),
    **dict.fromkeys(("exponential", "exponential_"), _exponential),
    **dict.fromkeys(("geometric", "geometric_"), _geometric),
    **dict.fromkeys(("log_normal", "log_normal_"), _log_normal),
    **dict.fromkeys(("cauchy", "cauchy_"), _cauchy),
    "multinomial": _choice,
}
_DROPOUT = "native_dropout"
DRAWING_OPERATORS = (*_DRAWS, _DROPOUT)


class FromStream(TorchDispatchMode):
    """Makes torch's random functions inside the ``with`` block draw from the stream in use.

    Calls with an explicit ``torch.Generator`` and the few functions without a replacement (``randperm``, ``poisson``,
    gamma distributions) are left to torch. Distributions do not validate their arguments inside the block, because
    validation waits for the device and cannot be traced.
    """

    def __enter__(self) -> FromStream:
        self._validates = Distribution._validate_args
        Distribution.set_default_validate_args(False)
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        Distribution.set_default_validate_args(self._validates)
        return super().__exit__(*error)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler at the first call, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return drawn_from_stream(func, args, kwargs or {})


def drawn_from_stream(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator; if it draws and there is a stream in use, draw from the stream instead."""
    name = _name(func)
    if name is None:
        return func(*args, **kwargs)
    draws = stream.current() is not None and kwargs.get("generator") is None
    if draws and name == _DROPOUT and args[2] is not False:
        return _dropped_out(args[0], args[1])
    return _drawn(name, func, args, kwargs) if draws and name in _DRAWS else func(*args, **kwargs)


@functools.cache
def _name(func: Any) -> str | None:
    """Return the name of an operator that draws; None for the others."""
    name = func._schema.name[len("aten::") :]
    return name if name in DRAWING_OPERATORS else None


@functools.cache
def _parameters(func: Any) -> tuple[tuple[str, ...], Arguments]:
    """Return the names of an operator's parameters, and their defaults."""
    parameters = func._schema.arguments
    return tuple(x.name for x in parameters), {x.name: x.default_value for x in parameters if x.has_default_value()}


def _drawn(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    names, defaults = _parameters(func)
    arguments = {**defaults, **dict(zip(names, args)), **kwargs}
    tensor = next((x for x in arguments.values() if isinstance(x, Tensor)), None)
    shape = arguments.get("size", () if tensor is None else tensor.shape)
    if name == "normal" and isinstance(arguments.get("mean"), Tensor) and isinstance(arguments.get("std"), Tensor):
        shape = torch.broadcast_shapes(arguments["mean"].shape, arguments["std"].shape)
    device = torch.device(arguments.get("device") or ("cpu" if tensor is None else tensor.device))
    drawn = _DRAWS[name](tuple(shape), device, arguments)
    if name.endswith("_"):
        return tensor.copy_(drawn)  # type: ignore[union-attr]
    kind = torch.get_default_dtype() if tensor is None else tensor.dtype
    if name in ("randint", "multinomial"):
        kind = torch.int64
    dtype = arguments.get("dtype")  # a default is a number there
    return drawn.to(dtype if isinstance(dtype, torch.dtype) else kind)


def _dropped_out(x: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Compute F.dropout's operator as on a CPU: the result, and a mask of the kept numbers."""
    kept = stream.uniform(x.shape, x.device) < 1.0 - p
    return x * kept / max(1.0 - p, 1e-30), kept
