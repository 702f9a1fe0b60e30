"""Import hooks: Omniverse's modules as fakes, changes of modules of Isaac Lab, and Isaac Lab's names of 2024."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from isaaclab_mujoco.fakes import FakeModule, Missing

OMNIVERSE = ("omni", "carb", "pxr", "isaacsim", "usdrt")
# packages that Isaac Lab imports for cameras, joysticks and datasets; they may be missing until one is called
OPTIONAL = ("hid", "flatdict", "torchvision", "pyglet", "h5py", "einops", "transformers", "starlette", "imageio")
# packages of Isaac Lab that are not needed
UNUSED = ("isaaclab.ui", "isaaclab.sim.views", "isaaclab_contrib")
OLD_NAMES = {  # Isaac Lab 1.x's; the first that fits counts
    "omni.isaac.lab_tasks.utils.wrappers": "isaaclab_rl",
    "omni.isaac.lab_tasks": "isaaclab_tasks",
    "omni.isaac.lab_assets": "isaaclab_assets",
    "omni.isaac.lab": "isaaclab",
}

Change = Callable[[ModuleType], None]


class Finder(MetaPathFinder, Loader):
    """Finds fakes, old names, and modules that are changed after they were executed.

    Attributes:
        changes: by the name of a module, what to do with it after its execution.
        real: packages of Omniverse that are imported at present as they are installed.
    """

    def __init__(self) -> None:
        self.changes: dict[str, list[Change]] = {}
        self.real: set[str] = set()
        self._optional = [name for name in OPTIONAL if PathFinder.find_spec(name) is None]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root = fullname.partition(".")[0]
        if root in self.real:
            return None
        if renamed(fullname) or root in OMNIVERSE or root in self._optional or within(fullname, UNUSED):
            return ModuleSpec(fullname, self, is_package=True)
        if fullname not in self.changes:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Changing(spec.loader, self.changes[fullname])
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        new = renamed(spec.name)
        if new:
            return None
        module = FakeModule(spec.name)
        if spec.name.partition(".")[0] in self._optional:
            module.base = Missing
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        new = renamed(module.__name__)
        if new:
            sys.modules[module.__name__] = importlib.import_module(new)  # the import returns this one
            return
        for change in self.changes.get(module.__name__, []):
            change(module)


class _Changing(Loader):
    def __init__(self, loader: Any, changes: list[Change]) -> None:
        self._loader, self._changes = loader, changes

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for change in self._changes:
            change(module)

    def __getattr__(self, name: str) -> Any:  # get_source and others, which inspect uses
        return getattr(self._loader, name)


def within(name: str, packages: Sequence[str]) -> bool:
    """Return whether a module is one of the packages or in one of them."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def renamed(name: str) -> str:
    """Return the present name of a module of Isaac Lab 1.x; empty for other modules."""
    old = next((old for old in OLD_NAMES if within(name, [old])), None)
    return "" if old is None else OLD_NAMES[old] + name[len(old) :]


def finder() -> Finder:
    """Return the installed finder; install one if there is none."""
    for present in sys.meta_path:
        if isinstance(present, Finder):
            return present
    new = Finder()
    sys.meta_path.insert(0, new)
    return new


_installed: dict[str, ModuleType] = {}


@contextmanager
def installed(package: str) -> Iterator[None]:
    """Import a package of Omniverse as it is installed, not as a fake, within this context."""

    def taken() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if within(name, [package])}

    fakes, hook = taken(), finder()
    sys.modules.update(_installed)  # compiled modules cannot be imported twice
    hook.real.add(package)
    try:
        yield
    finally:
        hook.real.remove(package)
        _installed.update(taken())
        sys.modules.update(fakes)


def on_import(name: str, **values: Any) -> None:
    """Set names of a module once it was executed."""
    finder().changes.setdefault(name, []).append(lambda module: vars(module).update(values))


def after_import(name: str, change: Change) -> None:
    """Call ``change`` with a module once it was executed."""
    finder().changes.setdefault(name, []).append(change)
