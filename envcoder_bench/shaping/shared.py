"""What all candidates of a process share: settings, and the attributes of modules that their functions read."""

import builtins
import collections
import copy
import functools
import importlib
import itertools
import math
import operator
import random
import re
import sys
import warnings

# what the end of the block calls, as it was before any candidate
from builtins import any, delattr, isinstance, len, list, map, setattr, vars  # noqa: UP029
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import is_not
from typing import Any

import numpy as np
import torch
import torch.nn.functional

from envcoder_bench import torch_utils

_SETTINGS = {
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "Python's recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "Python's limit of digits": (sys.get_int_max_str_digits, sys.set_int_max_str_digits),
}
_OWNERS: dict[str, Any] = {
    **{module.__name__: module for module in (math, random, builtins, np, np.linalg, np.random, np.fft, torch_utils)},
    **{module.__name__: module for module in (torch, torch.nn.functional, torch.linalg, torch.special, torch.fft)},
    **{module.__name__: module for module in (torch.random, torch.nn)},
    **{module.__name__: module for module in (collections, copy, functools, itertools, operator)},
    "torch.Tensor": torch.Tensor,
    "torch.nn.Module": torch.nn.Module,
}
_ABSENT = object()
_BUILTINS = frozenset(vars(builtins))
# SciPy's modules of the host's own statistics, which are always watched once they are loaded
_STATISTICS = ("scipy.special", "scipy.stats", "scipy.optimize")
_scipy_used: list[bool] = []  # not empty: a candidate of this process has named SciPy
# modules of SciPy in a text, and ways to modules whose names need not be in the text
_NAMED = re.compile(r"\bscipy(?:\.\w+)*")
_OPAQUE = re.compile(
    r"\b(?:sys|importlib|import_module|builtins|pkgutil|runpy)\b|__import__|__builtins__|(?<![\w.])(?:exec|eval)\b"
)
MOST_NAMED = 3


@contextmanager
def shared_settings(imported: Iterable[str] = (), text: str = "") -> Iterator[None]:
    """Restore process-wide settings and attributes of modules if the block changes them, and raise ValueError.

    Private attributes do not count, nor new ones, except of classes, where they hide those of the base, and those that
    hide a builtin. A module that another one replaces in ``sys.modules`` counts, or one that is gone. All of SciPy's
    loaded modules are watched once a candidate names one, and before that those of the host's statistics. The modules
    that the file imports or names in its ``text`` are loaded now, because a module that the block loads has no before.
    A filter that turns warnings into exceptions, also in code of others, is removed without an error.
    """
    named = [name for name in (*imported, *_NAMED.findall(text)) if name.split(".")[0] == "scipy"]
    _scipy_used[:] = _scipy_used or ([True] if named else [])
    for name in (*named, *(_STATISTICS if _OPAQUE.search(text) else ())):
        with suppress(ImportError):
            importlib.import_module(name)
    owners = {**_OWNERS, **_scipy()}
    filters = warnings.filters[:]
    before = {name: get() for name, (get, _) in _SETTINGS.items()}
    modules = {name: sys.modules[name] for name in owners if name in sys.modules}
    attributes = {name: vars(owner).copy() for name, owner in owners.items()}  # takes a fifth of the time of dict()
    changed = []
    try:
        yield
    finally:
        for name, (get, restore) in _SETTINGS.items():
            if get() != before[name]:
                changed.append(name)
                restore(before[name])  # type: ignore[arg-type]
        for name, module in modules.items():
            if sys.modules.get(name) is not module:
                changed.append(f"sys.modules[{name!r}]")
                sys.modules[name] = module
        for name, values in attributes.items():
            if not _same(vars(owners[name]), values):
                changed += _restore(name, owners[name], values)
        added = [x for x in warnings.filters if x not in filters]
        if any(x[0] == "error" for x in added):
            left = [x for x in warnings.filters if x in filters or x[0] != "error"]
            warnings.resetwarnings()  # forgets what the removed filters have decided
            warnings.filters[:] = left  # type: ignore[index]
    if changed:
        more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
        names = f"{', '.join(changed[:MOST_NAMED])}{more}" if more else " and ".join(changed)
        raise ValueError(f"changes {names}, which all candidates share: remove that statement")


def _scipy() -> dict[str, Any]:
    """Return SciPy's loaded modules to watch; all are a hundred, which take longer to compare than all others."""
    if not _scipy_used:
        return {name: sys.modules[name] for name in _STATISTICS if name in sys.modules}
    names = [name for name in list(sys.modules) if name[:6] == "scipy." and "._" not in name]
    return {name: sys.modules[name] for name in names if name in sys.modules}  # other threads import meanwhile


def _same(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Compare names, and identities of values: an object of a candidate may say that it equals any other."""
    names, values = list(now), list(now.values())  # other threads import meanwhile
    return names == list(before) and not any(map(is_not, values, before.values()))


def _restore(name: str, owner: Any, before: dict[str, Any]) -> list[str]:
    """Give the attributes of a module or class their values from before; return the names of those that had others."""
    now = vars(owner)
    is_class = isinstance(owner, type)
    public = [key for key in before if is_class or not key.startswith("_")]
    changed = [key for key in public if now.get(key, _ABSENT) is not before[key]]
    added = [key for key in now if key not in before and (is_class or key in _BUILTINS)]
    for key in changed:
        setattr(owner, key, before[key])
    for key in added:
        delattr(owner, key)
    return [f"{name}.{key}" for key in (*changed, *added)]
