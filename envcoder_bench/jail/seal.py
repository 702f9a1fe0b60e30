"""Detect whether a file has changed the functions and classes that load, check and trace it."""

import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

_PACKAGE = "envcoder_bench"


class Seal:
    """A snapshot of this package's functions and classes and of the class of tensors.

    Files cannot reach the modules (``namespace``), but they can reach the classes of the objects that they receive.
    """

    def __init__(self) -> None:
        self._snapshot: list[tuple[Any, dict[str, object]]] = [(owner, _members(owner)) for owner in _owners()]

    def changed(self) -> str:
        """Return the name of the first member that has changed; an empty string if none has."""
        for owner, before in self._snapshot:
            now = _members(owner)
            names = [name for name in before if now.get(name) is not before[name]]
            if isinstance(owner, type):  # a new name may hide that of a base class
                names += [name for name in now if name not in before]
            if names:
                return f"{owner.__name__}.{names[0]}"
        return ""


def _owners() -> Iterator[Any]:
    # copies, because imports, also by other threads or finalizers, change the originals
    for name, module in sys.modules.copy().items():
        if name.split(".")[0] == _PACKAGE:
            yield module
            yield from (x for x in vars(module).copy().values() if isinstance(x, type) and x.__module__ == name)
    yield torch.Tensor


def _members(owner: Any) -> dict[str, object]:
    """Return the callables of a module, or all attributes of a class."""
    if isinstance(owner, types.ModuleType):
        return {name: x for name, x in vars(owner).items() if callable(x)}
    return dict(vars(owner))
