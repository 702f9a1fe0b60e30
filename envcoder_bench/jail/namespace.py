"""The namespace of an untrusted file: restricted modules and builtins.

Security comes from the confined process (``confine``). The namespace keeps a file from changing the code that traces it
by accident or with little effort, and imports from searching for files, which cannot be opened.
"""

import difflib
import importlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from envcoder_bench.jail.names import (
    EXCLUDED_NAMES,
    OPEN_MODULES,
    PARTIAL_MODULES,
    REFUSED_ATTRIBUTES,
    TORCH_NAMES,
    UNSAFE_TORCH,
    hint,
)
from envcoder_bench.jail.null_logging import LOGGING, WARNINGS
from envcoder_bench.jail.replacements import REPLACEMENTS, restricted_builtins
from envcoder_bench.shaping.loading import GIVEN

_REPLACED_MODULES = {"logging": LOGGING, "warnings": WARNINGS}


class RestrictedModule(types.ModuleType):
    """A read-only view of some names of a module, which are looked up when they are used."""

    def __getattr__(self, name: str) -> Any:
        return _look_up(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"untrusted code may not change {self.__name__}.{name}: define a function of your own")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return sorted(_NAMES.get(self.__name__, ()))


_IMPORTABLE = " (a candidate is one file; torch, numpy, math, typing, dataclasses and the like can be imported)"
# by name of a module: its view, the names that files may use, and the module itself
_VIEWS: dict[str, RestrictedModule] = {}
_NAMES: dict[str, frozenset[str]] = {}
_REAL: dict[str, Any] = {}


def prepare(libraries: Mapping[str, frozenset[str]]) -> dict[str, object]:
    """Import all allowed modules, while files can still be opened, and return the namespace of a file.

    Args:
        libraries: allowed names by module of this package.
    """
    for name, names in {**dict.fromkeys(OPEN_MODULES), **PARTIAL_MODULES, **libraries}.items():
        module = _REAL[name] = _REPLACED_MODULES.get(name) or importlib.import_module(name)
        _NAMES[name] = _allowed_names(module, name) if names is None else frozenset(names)
        parts = name.split(".")
        for count in range(1, len(parts) + 1):  # parent packages give access to this module only
            path = ".".join(parts[:count])
            _VIEWS.setdefault(path, RestrictedModule(path))
            _NAMES.setdefault(path, frozenset())
    given = {name: _VIEWS[x.__name__] if isinstance(x, types.ModuleType) else x for name, x in GIVEN.items()}
    return {**given, "__builtins__": {**restricted_builtins(), "__import__": _import}}


def _allowed_names(module: Any, name: str) -> frozenset[str]:
    """Return the names of a module that files may use."""
    if name == "torch":
        kinds = (torch.dtype, torch.layout, torch.memory_format)
        functions = dir(torch._C._VariableFunctions)  # type: ignore[attr-defined]
        names = {*functions, *torch.functional.__all__, *TORCH_NAMES}
        names.update(key for key, value in vars(torch).items() if isinstance(value, kinds))
    else:
        names = set(getattr(module, "__all__", None) or dir(module))
    excluded = EXCLUDED_NAMES.get(name, frozenset()) | REFUSED_ATTRIBUTES
    return frozenset(key for key in names - excluded if key[0] != "_" and _is_allowed(module, key, name))


def _is_allowed(module: Any, key: str, name: str) -> bool:
    if not hasattr(module, key):
        return False
    value = getattr(module, key)
    if isinstance(value, types.ModuleType):
        return False
    if isinstance(value, type) and issubclass(value, np.ndarray) and value is not np.ndarray:
        return False  # like np.ndarray, they can be created at a given address
    return not (name.startswith("torch") and UNSAFE_TORCH.search(key))


def _look_up(module: RestrictedModule, name: str) -> Any:
    path = f"{module.__name__}.{name}"
    if path in _VIEWS:
        return _VIEWS[path]
    if name == "__all__":  # for "import *"
        return dir(module)
    if path in REPLACEMENTS:
        return REPLACEMENTS[path]
    if name in _NAMES.get(module.__name__, ()):
        try:
            return getattr(_REAL[module.__name__], name)
        except AttributeError:  # not chained, because it refers to the real module
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
) -> RestrictedModule:
    """Replace ``__import__``: raise ImportError for other modules, without searching for files."""
    if isinstance(fromlist, list):  # called by torch's or numpy's C code (PyImport_Import), which keeps the result
        return importlib.import_module(name)  # type: ignore[return-value]
    if level or name not in _VIEWS:
        path = "." * level + name
        raise ModuleNotFoundError(f"untrusted code may not import {path}{hint(name) or _IMPORTABLE}", name=name)
    module = _VIEWS[name]
    for part in fromlist or ():
        if part != "*":
            try:
                getattr(module, part)
            except AttributeError as error:
                raise ImportError(str(error), name=name) from None
    return module if fromlist else _VIEWS[name.split(".")[0]]
