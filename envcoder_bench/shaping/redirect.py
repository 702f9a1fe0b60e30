"""Imports of IsaacGymEnvs' tensor helpers resolve to our own where Isaac Gym is not installed.

The finder stands last in ``sys.meta_path``, so an installed original always wins. Of a missing ``isaacgym`` only
``torch_utils`` exists afterwards: code that asks whether Isaac Gym is there should look for ``isaacgym.gymapi``.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Sequence

OURS = "envcoder_bench.torch_utils"
HELPER_MODULES = ("isaacgym.torch_utils", "isaacgymenvs.utils.torch_jit_utils")
PACKAGES = ("isaacgym", "isaacgymenvs", "isaacgymenvs.utils")


class _Redirect(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in HELPER_MODULES or fullname in PACKAGES:
            return ModuleSpec(fullname, self, is_package=fullname in PACKAGES)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in HELPER_MODULES:
            sys.modules[module.__name__] = importlib.import_module(OURS)


def install() -> None:
    """Redirect from now on; a second call does nothing."""
    if not any(isinstance(finder, _Redirect) for finder in sys.meta_path):
        sys.meta_path.append(_Redirect())


def helper_names() -> frozenset[str]:
    """Names that our helper module defines; none where an original was imported, whose generators are torch's."""
    ours = importlib.import_module(OURS)
    if any(sys.modules.get(name, ours) is not ours for name in HELPER_MODULES):
        return frozenset()
    return frozenset(name for name, value in vars(ours).items() if callable(value) and not name.startswith("_"))
