"""Restricted replacements of builtins and of names of modules.

With the originals a file could access any address, run unchecked text, or change the code that traces it.
"""

import abc
import builtins
import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from envcoder_bench.jail.names import hint, is_refused

# builtins that raise NameError; names.HINTS says what to write instead
_REFUSED_BUILTINS = (
    "open", "exec", "eval", "compile", "globals", "locals", "input", "breakpoint", "help", "exit", "quit",
)  # fmt: skip
_REMOVED_BUILTINS = ("__loader__", "__spec__", "copyright", "credits", "license")


def restricted_builtins() -> dict[str, object]:
    """Return the builtins of untrusted files, except ``__import__``."""
    restricted = {name: value for name, value in vars(builtins).items() if name not in _REMOVED_BUILTINS}
    restricted.update({name: _refuse(name) for name in _REFUSED_BUILTINS})
    restricted.update(
        {
            "print": _print,
            "type": RestrictedType,
            "getattr": _getattr,
            "hasattr": _hasattr,
            "setattr": _setattr,
            "delattr": _delattr,
            "vars": _vars,
        }
    )
    return restricted


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NameError(f"untrusted code may not use {name}{hint(name)}")

    return refuse


def _print(*_: object, **__: object) -> None:
    """Do nothing: there is no output, and formatting would read a tensor's values."""


class _TypeMeta(type):
    def __call__(cls, x: object, *more: object) -> Any:  # type: ignore[override]
        if more:
            raise TypeError("untrusted code may not make classes with type: write class")
        if isinstance(x, type):
            return RestrictedType
        if isinstance(x, np.ndarray):
            return RestrictedArray
        return types.ModuleType if isinstance(x, types.ModuleType) else type(x)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, type)


class RestrictedType(metaclass=_TypeMeta):
    """Replace ``type``: return the class of an object, but create no classes."""

    def __class_getitem__(cls, _: object) -> Any:
        return cls


RestrictedType.__name__ = RestrictedType.__qualname__ = "type"


def _check_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError("the name of an attribute must be a string")
    plain = str.__str__(name)  # a subclass of str may compare as it likes
    if is_refused(plain):
        raise AttributeError(f"untrusted code may not use .{plain}{hint(plain)}")
    return plain


def _getattr(x: Any, name: str, *default: object) -> Any:
    name = _check_name(name)
    return getattr(x, name, *default)


def _hasattr(x: Any, name: str) -> bool:
    try:
        _getattr(x, name)
    except AttributeError:
        return False
    return True


def _setattr(x: Any, name: str, value: object) -> None:
    name = _check_name(name)
    setattr(_check_owner(x), name, value)


def _delattr(x: Any, name: str) -> None:
    name = _check_name(name)
    delattr(_check_owner(x), name)


def _check_owner(x: Any) -> Any:
    """Return an object whose attributes a file may set. Raises AttributeError for foreign classes and functions."""
    if isinstance(x, (type, types.FunctionType)) and not x.__module__.startswith("envcoder_candidate_"):
        raise AttributeError(f"untrusted code may not change {x.__name__}: define a function or class of your own")
    return x


def _vars(*args: Any) -> dict[str, object]:
    if len(args) != 1 or isinstance(args[0], (type, types.ModuleType, types.FunctionType)):
        raise NameError(f"untrusted code may not use vars except of an object of a class{hint('vars')}")
    return dict(vars(args[0]))  # a copy


class _ArrayMeta(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, np.ndarray)


class RestrictedArray(metaclass=_ArrayMeta):
    """Replace ``np.ndarray`` in annotations and ``isinstance``; the original can access any address of memory."""

    def __new__(cls, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"untrusted code may not call np.ndarray{hint('numpy.ndarray')}")

    def __class_getitem__(cls, _: object) -> Any:
        return cls


RestrictedArray.__name__ = RestrictedArray.__qualname__ = "ndarray"


def _check_names(names: Any) -> None:
    for name in [str.__str__(x) for x in names if isinstance(x, str)]:
        if name not in _CLASS_ATTRIBUTES and is_refused(name):
            raise TypeError(f"untrusted code may not use {name}{hint(name)}")


# attributes that Python itself adds to classes
_CLASS_ATTRIBUTES = (
    "__classcell__", "__orig_bases__", "__firstlineno__", "__static_attributes__", "__classdictcell__", "__annotate__",
    "__annotate_func__", "__type_params__", "__abstractmethods__", "__parameters__", "__set_name__",
)  # fmt: skip


class RestrictedNamespace(types.SimpleNamespace):
    """Replace ``types.SimpleNamespace``: refuse special names, which numpy and torch would interpret."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        _check_names({**dict(*args), **attributes})
        super().__init__(*args, **attributes)

    __replace__ = None  # copy.replace would bypass __init__


RestrictedNamespace.__name__ = RestrictedNamespace.__qualname__ = "SimpleNamespace"


class RestrictedABCMeta(abc.ABCMeta):
    """Replace ``abc.ABCMeta``, with which classes can be created: refuse special names."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **more: Any) -> Any:
        _check_names(namespace)
        return super().__new__(cls, name, bases, namespace, **more)


def check_members(create: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``EnumMeta._create_``, which ``Enum("Name", members)`` calls: refuse special names."""

    def checked(cls: Any, class_name: str, names: Any, *more: Any, **named: Any) -> Any:
        if not isinstance(names, Mapping):
            names = names.replace(",", " ").split() if isinstance(names, str) else list(names)
        _check_names(one if isinstance(one, str) else one[0] for one in names)
        return create(cls, class_name, names, *more, **named)

    return checked


def _wraps(wrapped: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
    return functools.wraps(wrapped)


def _dataclass(cls: Any = None, **options: Any) -> Any:
    """Replace ``dataclasses.dataclass``, which executes text made of the fields' names: check these names."""

    def decorate(cls: Any) -> Any:
        for base in cls.__mro__:
            names = [field.name for field in vars(base).get("__dataclass_fields__", {}).values()]
            for name in (*names, *vars(base).get("__annotations__", ())):
                if type(name) is not str or not name.isidentifier() or is_refused(name):
                    raise TypeError("untrusted code may not name a field with anything but a plain identifier")
        return dataclasses.dataclass(cls, **options)

    return decorate if cls is None else decorate(cls)


REPLACEMENTS: dict[str, Any] = {
    "dataclasses.dataclass": _dataclass,
    "abc.ABCMeta": RestrictedABCMeta,
    "functools.wraps": _wraps,
    "numpy.ndarray": RestrictedArray,
    "numpy.typing.NDArray": RestrictedArray,
    "types.SimpleNamespace": RestrictedNamespace,
}
