"""Make this implementation importable as ``isaacgym``, on request and only if no other is installed."""

import importlib
import logging
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from mujoco_batches.compat.torch_fuser import disable_cuda_fuser

API = "isaacgym_mujoco.api"
MODULES = ("gymapi", "gymtorch", "gymutil", "torch_utils", "terrain_utils")
NOTE = "isaacgym: open implementation on MuJoCo, not NVIDIA's; results are those of MuJoCo's physics."

_log = logging.getLogger("mujoco_batches.isaacgym")


class Redirect(MetaPathFinder, Loader):
    """An import hook that redirects ``old`` and its submodules to ``new``."""

    def __init__(self, old: str, new: str, submodules: Sequence[str] | None = None) -> None:
        self.old, self.new, self.submodules = old, new, submodules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        if package != self.old or (rest and self.submodules is not None and rest not in self.submodules):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = importlib.import_module(self.new + name[len(self.old) :])  # the import returns this one


def other() -> str | None:
    """Return the file of another ``isaacgym``; None if no other is installed."""
    spec = PathFinder.find_spec("isaacgym")
    return None if spec is None else spec.origin  # a plain folder, as in NVIDIA's archive, has no origin


def install() -> bool:
    """Make this implementation importable as ``isaacgym``, and log that it is not NVIDIA's package.

    Returns:
        False if another ``isaacgym`` is installed, which is then used.
    """
    installed = other()
    if installed is not None:
        _log.warning("isaacgym: using %s, not isaacgym_mujoco's", installed)
        return False
    if not any(isinstance(finder, Redirect) and finder.old == "isaacgym" for finder in sys.meta_path):
        for name in [n for n in sys.modules if n == "isaacgym" or n.startswith("isaacgym.")]:
            del sys.modules[name]  # the package that holds torch_utils for candidates
        sys.meta_path.insert(0, Redirect("isaacgym", API, MODULES))
        _log.warning(NOTE)
        disable_cuda_fuser()
    return True


def uninstall() -> None:
    """Undo ``install``."""
    sys.meta_path[:] = [f for f in sys.meta_path if not (isinstance(f, Redirect) and f.old == "isaacgym")]
    for name in [n for n in sys.modules if n == "isaacgym" or n.startswith("isaacgym.")]:
        del sys.modules[name]
