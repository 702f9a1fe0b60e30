"""Redirection of imports of IsaacGymEnvs' tensor helpers to our own if Isaac Gym is not installed.

The finder is last in ``sys.meta_path``, so that an installed original takes precedence. If ``isaacgym`` is not
installed, only ``isaacgym.torch_utils`` can be imported; code that tests for Isaac Gym should look for
``isaacgym.gymapi``.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

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
    """Install the redirection; a second call does nothing."""
    if not any(isinstance(finder, _Redirect) for finder in sys.meta_path):
        sys.meta_path.append(_Redirect())


def helper_names() -> frozenset[str]:
    """Return the names of our helper module; none if an original was imported, which uses torch's generators."""
    ours = importlib.import_module(OURS)
    if any(sys.modules.get(name, ours) is not ours for name in HELPER_MODULES):
        return frozenset()
    return frozenset(name for name, value in vars(ours).items() if callable(value) and not name.startswith("_"))
