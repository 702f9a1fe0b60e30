"""What the code of an untrusted file finds around it: modules that show a part of the real ones, and builtins.

None of this is the wall, which is the process (``confine``). It keeps a file from tampering with what traces it by
accident or with little effort, and its imports from looking for files that cannot be opened.
"""

from __future__ import annotations

import difflib
import importlib
import types
from typing import Any, Mapping, Sequence

import numpy as np
import torch

from envcoder_bench.jail.names import ATTRIBUTES, LEFT_OUT, OPEN, PARTS, TORCH, UNSAFE, hint
from envcoder_bench.jail.quiet import LOGGING, WARNINGS
from envcoder_bench.jail.stand_ins import STAND_INS, own_builtins
from envcoder_bench.shaping.loading import GIVEN

INSTEAD = {"logging": LOGGING, "warnings": WARNINGS}


class Shown(types.ModuleType):
    """A module as files see it: some names of the real one, looked up when they are used, and none that can be set."""

    def __getattr__(self, name: str) -> Any:
        return _look_up(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"untrusted code may not change {self.__name__}.{name}: define a function of your own")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return sorted(_NAMES.get(self.__name__, ()))


_IMPORTABLE = " (a candidate is one file; torch, numpy, math, typing, dataclasses and the like can be imported)"
# by the name of a module: what files see of it, the names that they may use, and what stands for some of them
_SHOWN: dict[str, Shown] = {}
_NAMES: dict[str, frozenset[str]] = {}
_REAL: dict[str, Any] = {}


def prepare(libraries: Mapping[str, frozenset[str]]) -> dict[str, object]:
    """Import all that files may use, while files can be opened, and return the names that a file finds.

    Args:
        libraries: modules of this package that files may import from, and which of their names.
    """
    for name, names in {**dict.fromkeys(OPEN), **PARTS, **libraries}.items():
        module = _REAL[name] = INSTEAD.get(name) or importlib.import_module(name)
        _NAMES[name] = _public(module, name) if names is None else frozenset(names)
        parts = name.split(".")
        for count in range(1, len(parts) + 1):  # packages on the way to it show it alone
            path = ".".join(parts[:count])
            _SHOWN.setdefault(path, Shown(path))
            _NAMES.setdefault(path, frozenset())
    given = {name: _SHOWN[x.__name__] if isinstance(x, types.ModuleType) else x for name, x in GIVEN.items()}
    return {**given, "__builtins__": {**own_builtins(), "__import__": _import}}


def _public(module: Any, name: str) -> frozenset[str]:
    """The names of a module that files may use."""
    if name == "torch":
        kinds = (torch.dtype, torch.layout, torch.memory_format)
        functions = dir(torch._C._VariableFunctions)  # type: ignore[attr-defined]
        names = {*functions, *torch.functional.__all__, *TORCH}
        names.update(key for key, value in vars(torch).items() if isinstance(value, kinds))
    else:
        names = set(getattr(module, "__all__", None) or dir(module))
    left_out = LEFT_OUT.get(name, frozenset()) | ATTRIBUTES
    return frozenset(key for key in names - left_out if key[0] != "_" and _is_open(module, key, name))


def _is_open(module: Any, key: str, name: str) -> bool:
    if not hasattr(module, key):
        return False
    value = getattr(module, key)
    if isinstance(value, types.ModuleType):
        return False
    if isinstance(value, type) and issubclass(value, np.ndarray) and value is not np.ndarray:
        return False  # they take an address, as their base does
    return not (name.startswith("torch") and UNSAFE.search(key))


def _look_up(module: Shown, name: str) -> Any:
    path = f"{module.__name__}.{name}"
    if path in _SHOWN:
        return _SHOWN[path]
    if name == "__all__":  # of "import *"
        return dir(module)
    if path in STAND_INS:
        return STAND_INS[path]
    if name in _NAMES.get(module.__name__, ()):
        try:
            return getattr(_REAL[module.__name__], name)
        except AttributeError:  # which would hold the real module
            raise AttributeError(f"there is no {path} here") from None
    real = _REAL.get(module.__name__)
    if name == "__version__":
        return getattr(real, name)
    if name[:2] != "__" and (hasattr(real, name) or hint(path)):
        raise AttributeError(f"untrusted code may not use {path}{hint(path)}")
    raise AttributeError(f"there is no {path}{_near(module.__name__, name)}")


def _near(module: str, name: str) -> str:
    close = difflib.get_close_matches(name, sorted(_NAMES.get(module, ())), n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""


def _import(
    name: str, globals: object = None, locals: object = None, fromlist: Sequence[str] | None = (), level: int = 0
) -> Shown:
    """In place of ``__import__``: what is not there is an ImportError, and no file is looked for."""
    if isinstance(fromlist, list):  # torch's or numpy's C code (PyImport_Import), which alone gets the result
        return importlib.import_module(name)  # type: ignore[return-value]
    if level or name not in _SHOWN:
        what = "." * level + name
        raise ModuleNotFoundError(f"untrusted code may not import {what}{hint(name) or _IMPORTABLE}", name=name)
    module = _SHOWN[name]
    for part in fromlist or ():
        if part != "*":
            try:
                getattr(module, part)
            except AttributeError as error:
                raise ImportError(str(error), name=name) from None
    return module if fromlist else _SHOWN[name.split(".")[0]]
