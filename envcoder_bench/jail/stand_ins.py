"""What stands in for builtins and for names of modules that reach further than a computation needs.

With the real ones a file could read and write any address, run text that nobody has checked, or change what traces it.
"""

from __future__ import annotations

import abc
import builtins
import dataclasses
import functools
import types
from typing import Any, Callable, Mapping, NoReturn

import numpy as np

from envcoder_bench.jail.names import hint, is_refused

# builtins that a file must do without; what is done instead is in names.HINTS
_ABSENT = (
    "open", "exec", "eval", "compile", "globals", "locals", "input", "breakpoint", "help", "exit", "quit",
)  # fmt: skip
_NOT_GIVEN = ("__loader__", "__spec__", "copyright", "credits", "license")


def own_builtins() -> dict[str, object]:
    """The builtins of untrusted files, but for ``__import__``."""
    own = {name: value for name, value in vars(builtins).items() if name not in _NOT_GIVEN}
    own.update({name: _absent(name) for name in _ABSENT})
    own.update(
        {
            "print": _print,
            "type": Kind,
            "getattr": _getattr,
            "hasattr": _hasattr,
            "setattr": _setattr,
            "delattr": _delattr,
            "vars": _vars,
        }
    )
    return own


def _absent(name: str) -> Callable[..., NoReturn]:
    def absent(*_: object, **__: object) -> NoReturn:
        raise NameError(f"untrusted code may not use {name}{hint(name)}")

    return absent


def _print(*_: object, **__: object) -> None:
    """There is nobody to read it, and a tensor's numbers must not be asked for."""


class _KindKind(type):
    def __call__(cls, x: object, *more: object) -> Any:  # type: ignore[override]
        if more:
            raise TypeError("untrusted code may not make classes with type: write class")
        if isinstance(x, type):
            return Kind
        if isinstance(x, np.ndarray):
            return Array
        return types.ModuleType if isinstance(x, types.ModuleType) else type(x)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, type)


class Kind(metaclass=_KindKind):
    """``type``, which tells the class of an object and makes none."""

    def __class_getitem__(cls, _: object) -> Any:
        return cls


Kind.__name__ = Kind.__qualname__ = "type"


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError("the name of an attribute must be a string")
    plain = str.__str__(name)  # no subclass, whose comparisons may say what they like
    if is_refused(plain):
        raise AttributeError(f"untrusted code may not use .{plain}{hint(plain)}")
    return plain


def _getattr(x: Any, name: str, *default: object) -> Any:
    name = _checked(name)
    return getattr(x, name, *default)


def _hasattr(x: Any, name: str) -> bool:
    try:
        _getattr(x, name)
    except AttributeError:
        return False
    return True


def _setattr(x: Any, name: str, value: object) -> None:
    name = _checked(name)
    setattr(_own(x), name, value)


def _delattr(x: Any, name: str) -> None:
    name = _checked(name)
    delattr(_own(x), name)


def _own(x: Any) -> Any:
    """An object whose attributes a file may set: no class, function or module of others."""
    if isinstance(x, (type, types.FunctionType)) and not x.__module__.startswith("envcoder_candidate_"):
        raise AttributeError(f"untrusted code may not change {x.__name__}: define a function or class of your own")
    return x


def _vars(*given: Any) -> dict[str, object]:
    if len(given) != 1 or isinstance(given[0], (type, types.ModuleType, types.FunctionType)):
        raise NameError(f"untrusted code may not use vars but for an object of a class{hint('vars')}")
    return dict(vars(given[0]))  # a copy


# what stands for names of modules, because the real ones reach further


class _ArrayKind(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, np.ndarray)


class Array(metaclass=_ArrayKind):
    """``np.ndarray`` in annotations and ``isinstance``. The real one can be made over any address of memory."""

    def __new__(cls, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"untrusted code may not call np.ndarray{hint('numpy.ndarray')}")

    def __class_getitem__(cls, _: object) -> Any:
        return cls


Array.__name__ = Array.__qualname__ = "ndarray"


def _refuse_names(names: Any) -> None:
    for name in [str.__str__(x) for x in names if isinstance(x, str)]:
        if name not in _OF_CLASSES and is_refused(name):
            raise TypeError(f"untrusted code may not use {name}{hint(name)}")


# what Python itself puts into a class
_OF_CLASSES = (
    "__classcell__", "__orig_bases__", "__firstlineno__", "__static_attributes__", "__classdictcell__", "__annotate__",
    "__annotate_func__", "__type_params__", "__abstractmethods__", "__parameters__", "__set_name__",
)  # fmt: skip


class Namespace(types.SimpleNamespace):
    """``types.SimpleNamespace`` without the interpreter's names, which numpy and torch would obey."""

    def __init__(self, *given: Any, **attributes: Any) -> None:
        _refuse_names({**dict(*given), **attributes})
        super().__init__(*given, **attributes)

    __replace__ = None  # of copy.replace, which asks no __init__


Namespace.__name__ = Namespace.__qualname__ = "SimpleNamespace"


class AbstractKind(abc.ABCMeta):
    """``abc.ABCMeta``, which is a way to make classes."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **more: Any) -> Any:
        _refuse_names(namespace)
        return super().__new__(cls, name, bases, namespace, **more)


def check_members(create: Callable[..., Any]) -> Callable[..., Any]:
    """``EnumMeta._create_``, of Enum("Name", members), without the interpreter's names."""

    def checked(cls: Any, class_name: str, names: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(names, Mapping):
            names = names.replace(",", " ").split() if isinstance(names, str) else list(names)
        _refuse_names(one if isinstance(one, str) else one[0] for one in names)
        return create(cls, class_name, names, *more, **named)

    return checked


def _wraps(wrapped: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
    return functools.wraps(wrapped)


def _dataclass(cls: Any = None, **options: Any) -> Any:
    """``dataclasses.dataclass``, which runs a text that it makes of the fields' names."""

    def made(cls: Any) -> Any:
        for base in cls.__mro__:
            names = [field.name for field in vars(base).get("__dataclass_fields__", {}).values()]
            for name in (*names, *vars(base).get("__annotations__", ())):
                if type(name) is not str or not name.isidentifier() or is_refused(name):
                    raise TypeError("untrusted code may not give a field a name that is no plain identifier")
        return dataclasses.dataclass(cls, **options)

    return made if cls is None else made(cls)


STAND_INS: dict[str, Any] = {
    "dataclasses.dataclass": _dataclass,
    "abc.ABCMeta": AbstractKind,
    "functools.wraps": _wraps,
    "numpy.ndarray": Array,
    "numpy.typing.NDArray": Array,
    "types.SimpleNamespace": Namespace,
}
