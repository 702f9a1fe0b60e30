"""Detection of values that a candidate keeps between calls, by comparing its module before and after a call.

This finds what one call stores, in whatever form: in a global variable, through a local name, an argument or an
attribute of a function. It does not find a store that the call does not reach, behind a branch on numbers of the state;
such a function cannot be traced, and groups never share the module of a function that is called.
"""

import array
import enum
import functools
import itertools
import random
from argparse import Namespace
from collections import UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    SimpleNamespace,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

MOST, FIRST = 20_000, 1_000  # most values of a module, and of a container, that are compared
LARGEST = 1 << 22  # bytes of an array whose numbers are compared
_PLAIN = {type(None), bool, int, str, bytes}
_SEQUENCES: tuple[Any, ...] = (list, tuple, deque)
_SETS: tuple[Any, ...] = (set, frozenset)
_OPEN = (SimpleNamespace, Namespace, UserDict, UserList, torch.nn.Module, SobolEngine)  # attributes change
_POSITIONS = {type(iter([])), type(iter(())), type(iter(range(1)))}
_COUNTS = (itertools.count, itertools.repeat)
_CACHED: Any = type(functools.cache(len))  # a function that lru_cache or cache decorates
# random generators, and how to read their states
_GENERATORS: dict[type, Callable[[Any], Any]] = {
    torch.Generator: lambda x: x.get_state(),
    random.Random: lambda x: x.getstate(),
    np.random.RandomState: lambda x: x.get_state(legacy=False),
    np.random.Generator: lambda x: x.bit_generator,
    np.random.BitGenerator: lambda x: (x.state, getattr(x, "seed_seq", None)),
    np.random.SeedSequence: lambda x: x.state,
}


def contents(module: Mapping[str, Any]) -> list[object]:
    """Return a description of the values that a module's functions, classes and variables hold.

    Two descriptions are equal if nothing was stored in between. Objects of other modules' classes are not entered,
    except containers, arrays, neural networks and random generators; a logger keeps values, too. Does not raise.
    """
    tokens: list[object] = []
    todo: deque[Any] = deque([_named(module)])
    seen: dict[int, tuple[int, Any]] = {}  # number and value by id; a value that is held has an id of its own
    while todo and len(tokens) < MOST:
        x = todo.popleft()
        kind = type(x)
        if kind in _PLAIN:
            tokens.append((kind, x))
        elif kind is float or kind is complex:
            tokens.append(repr(x))  # NaN is not equal to itself
        elif id(x) in seen:
            tokens.append(("seen", seen[id(x)][0]))
        else:
            seen[id(x)] = len(seen), x
            try:
                token, parts = _described(x, kind, module.get("__name__"))
            except Exception:  # code of the candidate, such as __getattr__, may have been called
                token, parts = id(x), ()
            tokens.append(token)
            todo.extend(parts)
    return tokens


def _named(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names that Python does not manage itself, as it does ``__warningregistry__``."""
    return {name: x for name, x in list(names.items()) if not (name.startswith("__") and name.endswith("__"))}


def _described(x: Any, kind: type, home: object) -> tuple[object, Iterable[Any]]:
    """Return what identifies a value by itself, and its parts."""
    attributes = _attributes(x, kind, home)
    # arrays by their numbers, containers by their keys and parts
    if issubclass(kind, Tensor):
        return (x._version, *_numbers(x)), [x.__dict__]
    if issubclass(kind, np.ndarray):
        return (x.shape, x.tobytes() if x.nbytes <= LARGEST and not x.dtype.hasobject else id(x)), attributes
    if issubclass(kind, dict):
        items = list(itertools.islice(dict.items(x), FIRST))
        if issubclass(kind, defaultdict):  # reading a missing key stores a default, which changes nothing
            items = [(key, value) for key, value in items if not _is_default(value, x.default_factory)]
        return (kind, [_key(key) for key, _ in items]), [*(value for _, value in items), *attributes]
    for base in _SEQUENCES:
        if issubclass(kind, base):
            return (kind, base.__len__(x)), [*itertools.islice(base.__iter__(x), FIRST), *attributes]
    for base in _SETS:
        if issubclass(kind, base):
            return (kind, {_key(value) for value in base.__iter__(x)}), attributes
    # iterators, generators and caches, which change by being used
    if kind is bytearray or kind is array.array:
        return bytes(x), ()
    if kind is GeneratorType:
        return (id(x), x.gi_frame and x.gi_frame.f_lasti), ()
    if kind is _CACHED:
        info = x.cache_info()
        return (id(x), info.misses, info.currsize), [x.__wrapped__]
    if kind in _POSITIONS:
        return (id(x), x.__length_hint__()), ()
    if issubclass(kind, tuple(_GENERATORS)) and not _is_shared(x):
        return id(x), [*(state(x) for base, state in _GENERATORS.items() if issubclass(kind, base)), *attributes]
    return repr(x) if kind in _COUNTS else id(x), attributes


def _attributes(x: Any, kind: type, home: object) -> Iterable[Any]:
    """Return the values that an object of the module holds beside the elements of a container."""
    # functions with their bound values; functions of other modules are shared by all, and not examined
    if kind is FunctionType:
        return [vars(x), x.__defaults__, x.__kwdefaults__, *(x.__closure__ or ())] if x.__module__ == home else ()
    if kind is CellType:
        return _held(lambda: x.cell_contents)
    if kind is functools.partial:
        return [x.func, x.args, x.keywords]
    if kind is MethodType:
        return [x.__self__, x.__func__]
    if kind is BuiltinMethodType:
        return [x.__self__]
    if kind is staticmethod or kind is classmethod:
        return [x.__func__]
    if kind is property:
        return [x.fget, x.fset]
    if issubclass(kind, type):
        return [_of_class(x)] if x.__module__ == home else ()
    if issubclass(kind, torch.jit.ScriptModule):
        return [*x.parameters(), *x.buffers()]
    if kind.__module__ != home and not issubclass(kind, _OPEN):
        return ()
    # objects of the candidate's own classes
    slots = [slot for base in kind.__mro__ for slot in vars(base).values() if type(slot) is MemberDescriptorType]
    values = [value for slot in slots for value in _held(functools.partial(slot.__get__, x))]
    return [kind, *_held(lambda: object.__getattribute__(x, "__dict__")), *values]


def _of_class(x: type) -> dict[str, Any]:
    """Return a class's attributes, without those in which an enumeration stores combinations of its members."""
    named = _named(vars(x))
    return {name: value for name, value in named.items() if not (issubclass(x, enum.Enum) and name.startswith("_"))}


def _held(read: Callable[[], Any]) -> list[Any]:
    """Return the value that a cell, a slot or an object holds; nothing if it is empty."""
    try:
        return [read()]
    except (AttributeError, ValueError):
        return []


def _is_shared(x: Any) -> bool:
    """Return whether a generator is one of the process's, which core/stream.py restores after each call."""
    shared = (torch.default_generator, *torch.cuda.default_generators, random.random.__self__, np.random.rand.__self__)
    return any(x is generator for generator in shared)


def _is_default(value: Any, factory: Any) -> bool:
    if type(value) not in (_PLAIN | {float, list, dict}) or not isinstance(factory, (type, FunctionType)):
        return False
    try:
        default = factory()
        return type(default) is type(value) and bool(default == value)
    except Exception:  # it is the candidate's code
        return False


def _key(x: Any) -> object:
    return (type(x), x) if type(x) in _PLAIN else id(x)


def _numbers(x: Tensor) -> tuple[object, ...]:
    """Return the shape and the numbers of a tensor on the CPU, which ``.data`` and ``.numpy()`` can change.

    A tensor that is large, or on a GPU, where reading would wait, is described by its identity.
    """
    if x.device.type != "cpu" or x.layout != torch.strided or x.numel() * x.element_size() > LARGEST:
        return x.shape, id(x)
    try:
        return x.shape, x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, TypeError):  # a quantized or conjugated tensor
        return x.shape, id(x)
