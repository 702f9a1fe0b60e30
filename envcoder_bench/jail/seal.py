"""Notice when a file has changed the functions and classes that load, check and trace it."""

from __future__ import annotations

import sys
import types
from typing import Any, Iterator

import torch

_PACKAGE = "envcoder_bench"


class Seal:
    """This package's functions and classes, and the class of tensors, as they are now.

    Files have no modules at hand that they could change (``surroundings``), but the classes of the objects that they
    are given.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Any, dict[str, object]]] = [(owner, _parts(owner)) for owner in _owners()]

    def broken(self) -> str:
        """The first thing that has changed since; an empty string: nothing has."""
        for owner, before in self._kept:
            now = _parts(owner)
            names = [name for name in before if now.get(name) is not before[name]]
            if isinstance(owner, type):  # a name that is new there may stand before that of a base
                names += [name for name in now if name not in before]
            if names:
                return f"{owner.__name__}.{names[0]}"
        return ""


def _owners() -> Iterator[Any]:
    # copies: an import, also of another thread or a finalizer, changes the originals
    for name, module in sys.modules.copy().items():
        if name.split(".")[0] == _PACKAGE:
            yield module
            yield from (x for x in vars(module).copy().values() if isinstance(x, type) and x.__module__ == name)
    yield torch.Tensor


def _parts(owner: Any) -> dict[str, object]:
    """What can be called in a module; all that a class has."""
    if isinstance(owner, types.ModuleType):
        return {name: x for name, x in vars(owner).items() if callable(x)}
    return dict(vars(owner))
