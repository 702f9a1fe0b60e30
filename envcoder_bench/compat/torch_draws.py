"""Interception of the random functions in a task's code, without a cost for its other operators.

Uses a dispatch key of torch that nothing else uses, ``TESTING_ONLY_GenericMode``, and
``torch._C._dispatch_tls_set_dispatch_key_included``. The key has kernels for the operators that draw, and lets all
others pass; it is active in the thread inside the block. TorchScript and C++ code are covered, too. ``nonzero`` is not
intercepted in this way, because indexing with a mask calls it as well: its Python functions are replaced inside the
block.

Why: a ``TorchDispatchMode`` such as ``FromStream``, torch's public way, makes every operator four times as slow.

Upstream: no issue of torch asks for a mode that intercepts some operators only. Where the key is not usable,
``FromStream`` takes its place.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, library
from torch.distributions import Distribution

from envcoder_bench.core import stream
from envcoder_bench.core.random_calls import DRAWING_OPERATORS, FromStream, drawn_from_stream
from mujoco_batches.compat import warn_once

_KEY = "TESTING_ONLY_GenericMode"
_SEARCHES = ("nonzero", "argwhere", "where")  # functions that return the indices of a mask's elements


class DrawsFromRows:
    """Makes torch's random functions inside the ``with`` block draw from the stream in use.

    If the stream has a method ``note_found``, it is called with the results of ``nonzero``. Blocks must not be nested.
    """

    def __enter__(self) -> None:
        self._slow = None if _install_kernels() else FromStream()
        self._validates = Distribution._validate_args
        Distribution.set_default_validate_args(False)  # FromStream does so, too
        self._functions = [(name, getattr(torch, name)) for name in _SEARCHES]
        for name, function in self._functions:
            setattr(torch, name, _with_note(function))
        for name in _SEARCHES[:2]:
            setattr(Tensor, name, _with_note(getattr(Tensor, name)))
        if self._slow is None:
            torch._C._dispatch_tls_set_dispatch_key_included(_KEY, True)
        else:
            self._slow.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._slow is None:
            torch._C._dispatch_tls_set_dispatch_key_included(_KEY, False)
        else:
            self._slow.__exit__(*error)
        for name in _SEARCHES[:2]:
            delattr(Tensor, name)  # inherited from a base class
        for name, function in self._functions:
            setattr(torch, name, function)
        Distribution.set_default_validate_args(self._validates)


def _with_note(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also gives its result to the stream in use."""

    @functools.wraps(function)
    def call_and_note(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        note = getattr(stream.current(), "note_found", None)
        mask = args[0] if args else kwargs.get("input", kwargs.get("condition"))
        if note is not None and isinstance(mask, Tensor) and mask.dim() == 1:
            indices = result[0] if isinstance(result, tuple) else result
            if indices.dtype == torch.int64 and len(args) + len(kwargs) - ("as_tuple" in kwargs) == 1:
                note(mask, indices)
        return result

    return call_and_note


@functools.cache
def _install_kernels() -> tuple[library.Library, ...]:
    """Register the kernels, which live as long as the libraries; the cache keeps these.

    Returns:
        The libraries; none if this torch does not have the key.
    """
    others, drawing = library.Library("_", "IMPL"), library.Library("aten", "IMPL")
    try:
        torch._C._dispatch_tls_set_dispatch_key_included(_KEY, False)
        others.fallback(library.fallthrough_kernel, _KEY)
        for operator in _operators():
            schema = operator._schema
            name = schema.name[len("aten::") :] + (f".{schema.overload_name}" if schema.overload_name else "")
            drawing.impl(name, _kernel(operator), _KEY)
    except (AttributeError, RuntimeError) as error:
        warn_once(f"torch's dispatch key {_KEY}", str(error), "a task's random functions make its code slower")
        return ()
    return others, drawing


def _operators() -> Iterator[Any]:
    for name in DRAWING_OPERATORS:
        packet = getattr(torch.ops.aten, name, None)
        for overload in () if packet is None else packet.overloads():
            yield getattr(packet, overload)


def _kernel(operator: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        torch._C._dispatch_tls_set_dispatch_key_included(_KEY, False)
        try:
            return drawn_from_stream(operator, args, kwargs)
        finally:
            torch._C._dispatch_tls_set_dispatch_key_included(_KEY, True)

    return kernel
