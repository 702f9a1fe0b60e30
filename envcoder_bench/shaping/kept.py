"""Detection of values that a candidate keeps between calls, by comparing its module before and after a call.

The analysis of the text (``scan.py``) finds stores by their form, whether or not a call makes them. This finds what one
call stores, in whatever form: through a local name, an argument or an attribute of a function.
"""

from __future__ import annotations

import functools
from collections import deque
from types import CellType, FunctionType, GeneratorType, MethodType, SimpleNamespace
from typing import Any, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

MOST = 20_000  # values that are compared; of larger modules the first ones
LARGEST = 1 << 16  # bytes of an array whose numbers are compared
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_WRAPPERS = (staticmethod, classmethod)
_SEQUENCES: tuple[Any, ...] = (list, tuple, deque)
_SETS: tuple[Any, ...] = (set, frozenset)


def contents(module: Mapping[str, Any]) -> list[object]:
    """Return a description of the values that a module's functions, classes and variables hold.

    Two descriptions are equal if nothing was stored in between. Objects of other modules' classes are not entered,
    except containers, arrays and neural networks: a logger keeps values, too. Calls no code of the module.

    Args:
        module: the module's globals.
    """
    found: list[object] = []
    home = module.get("__name__")
    todo: deque[Any] = deque([_named(module)])
    seen: dict[int, Any] = {}  # holds the values, so that no two have the same id
    while todo and len(found) < MOST:
        x = todo.popleft()
        if isinstance(x, _PLAIN):
            found.append(repr(x))
        elif id(x) not in seen:
            seen[id(x)] = x
            token, parts = _described(x, home)
            found.append(token)
            todo.extend(parts)
    return found


def _named(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Python does not manage itself, such as ``__warningregistry__``."""
    return {name: x for name, x in list(names.items()) if not (name.startswith("__") and name.endswith("__"))}


def _described(x: Any, home: object) -> tuple[object, Iterable[Any]]:
    """Return what identifies a value by itself, and its parts."""
    if isinstance(x, Tensor):
        return (id(x), _version(x), *_numbers(x)), ()
    if isinstance(x, np.ndarray):
        shown = x.tobytes() if x.nbytes <= LARGEST and not x.dtype.hasobject else b""
        return (id(x), x.shape, shown), ()
    if isinstance(x, dict):
        return (type(x), list(map(_key, dict.keys(x)))), list(dict.values(x))
    for base in _SEQUENCES:
        if isinstance(x, base):
            parts = list(base.__iter__(x))
            return (type(x), len(parts)), parts
    for base in _SETS:
        if isinstance(x, base):
            return (type(x), sorted(map(_key, base.__iter__(x)))), ()
    if isinstance(x, GeneratorType):
        return (id(x), x.gi_frame and x.gi_frame.f_lasti), ()
    return id(x), _inside(x, home)


def _inside(x: Any, home: object) -> Iterable[Any]:
    """Return the values that an object of the module holds; nothing of others."""
    if isinstance(x, FunctionType) and x.__module__ == home:
        return [vars(x), x.__defaults__, x.__kwdefaults__, *(x.__closure__ or ())]
    if isinstance(x, CellType):
        try:
            return [x.cell_contents]
        except ValueError:  # it is empty
            return ()
    if isinstance(x, functools.partial):
        return [x.func, x.args, x.keywords]
    if isinstance(x, MethodType):
        return [x.__self__, x.__func__]
    if isinstance(x, _WRAPPERS):
        return [x.__func__]
    if isinstance(x, property):
        return [x.fget]
    if isinstance(x, type):
        return [_named(vars(x))] if x.__module__ == home else ()
    if isinstance(x, torch.jit.ScriptModule):
        return [*x.parameters(), *x.buffers()]
    if isinstance(x, torch.nn.Module):
        return [vars(x)]
    if type(x).__module__ == home or isinstance(x, SimpleNamespace):
        slots = [name for base in type(x).__mro__ for name in _slots(base)]
        return [type(x), getattr(x, "__dict__", {}), {name: getattr(x, name) for name in slots if hasattr(x, name)}]
    return ()


def _key(x: Any) -> str:
    return repr(x) if isinstance(x, _PLAIN) else str(id(x))


def _slots(base: type) -> list[str]:
    names = vars(base).get("__slots__", ())
    return [names] if isinstance(names, str) else list(names)


def _version(x: Tensor) -> int:
    try:
        return x._version
    except RuntimeError:  # an inference tensor has none
        return 0


def _numbers(x: Tensor) -> tuple[object, ...]:
    """Return the shape and the bytes of a small tensor on the CPU, which ``.data`` and ``.numpy()`` can change."""
    if x.device.type != "cpu" or x.layout != torch.strided or x.numel() * x.element_size() > LARGEST:
        return (x.shape,)
    try:
        return x.shape, x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError):  # quantized or conjugated ones, and those of a subclass
        return (x.shape,)
