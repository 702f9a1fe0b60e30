"""Import code that was written for Isaac Gym, isolated from what candidates import under the same names."""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import io
import logging
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Set
from pathlib import Path
from types import ModuleType
from typing import Any

import envcoder_bench
import isaacgym_mujoco
from envcoder_bench.core.errors import near_matches
from isaacgym_mujoco.import_hook import install, uninstall
from isaacgym_mujoco.old_code import Completion, old_code
from isaacgym_mujoco.on_cpu import remedy

log = logging.getLogger(__name__)
# packages that exist only inside the block; candidates import this project's helpers under the first two names
PACKAGES = ("isaacgym", "isaacgymenvs", "legged_gym", "rsl_rl")
_packages: set[str] = set(PACKAGES)  # and those of forks with other names
_kept: dict[str, ModuleType] = {}  # modules of these packages, kept between blocks
_lock = threading.RLock()
_logged: list[bool] = []  # not empty: the origin of isaacgym was logged


@contextlib.contextmanager
def isaac_imports(*folders: Path) -> Iterator[io.StringIO]:
    """Make ``isaacgym``, old names and the packages in ``folders`` importable inside the block.

    Output of the code goes to the stream that the block gets, and is logged at level DEBUG.
    """
    with _lock, _own_modules(), _own_isaacgym(), old_code(), _completed_rsl_rl(), _quiet() as printed:
        before = list(sys.path)
        sys.path[:0] = [str(folder) for folder in folders]
        try:
            yield printed
        finally:
            sys.path[:] = before
            _kept.update(_covered())


@contextlib.contextmanager
def _own_modules() -> Iterator[None]:
    outside = _covered()
    for name in outside:
        del sys.modules[name]
    sys.modules.update(_kept)
    try:
        yield
    finally:
        for name in _kept:  # and all that the block has imported
            sys.modules.pop(name, None)
        sys.modules.update(outside)


@contextlib.contextmanager
def _own_isaacgym() -> Iterator[None]:
    """Install this project's ``isaacgym`` unless there is another one; log once which one is used."""
    present = {name: module for name, module in _kept.items() if name.partition(".")[0] == "isaacgym"}
    messages = logging.getLogger("mujoco_batches.isaacgym")
    level = messages.level
    # installing it says which package is used: once is enough
    if _logged:
        messages.setLevel(logging.ERROR)
    try:
        install()
    finally:
        messages.setLevel(level)
        _logged.append(True)
    sys.modules.update(present)
    try:
        yield
    finally:
        uninstall()


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    printed = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            warnings.simplefilter("ignore")
            yield printed
    finally:
        if printed.getvalue():
            log.debug("%s", printed.getvalue())


def _covered(packages: Set[str] = _packages) -> dict[str, ModuleType]:
    """Return the imported modules of some packages."""
    first = tuple(packages)  # in C: there are thousands of modules
    names = [name for name in sys.modules if name.startswith(first)]
    return {name: sys.modules[name] for name in names if name.partition(".")[0] in packages}


@contextlib.contextmanager
def _completed_rsl_rl() -> Iterator[None]:
    """Provide placeholders for what legged_gym imports of its trainer and is not installed; nothing here calls it.

    Forks bring an rsl_rl with modules and classes of their own, and PyPI's rsl-rl-lib has other ones.
    """
    finder = Completion("rsl_rl")
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def checkout(package: str, variable: str, address: str) -> Path | None:
    """Return the folder of a package that an environment variable names, or None if the package is importable.

    Raises:
        ValueError: neither; the message says how to get a checkout.
    """
    path = os.environ.get(variable)
    if path:
        folder = folder_with(Path(path), package)
        if folder is not None:
            return folder
        raise ValueError(f"{variable}={path}: it does not contain the package {package}; name the checkout's folder")
    # what is imported may be of another checkout: ask the path alone
    with _lock:
        outside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package}
        try:
            spec = importlib.machinery.PathFinder.find_spec(package)
        finally:
            sys.modules.update(outside)
    if spec is None or spec.origin is None:
        raise ValueError(
            f"--task {address}: {package} is neither importable nor named by {variable}; get it with:"
            f" git clone {_REPOSITORIES[package]} && export {variable}=$PWD/{_REPOSITORIES[package].rpartition('/')[2]}"
        )
    return None


def folder_with(path: Path, package: str) -> Path | None:
    """Return the folder of a checkout from which ``package`` is imported; None if there is none."""
    for file in _PACKAGES_FILES:
        for folder in (path, path / package, path / "python"):
            if any((folder / package).glob(file)):
                return folder.resolve()
            if folder.name == package and any(folder.glob(file)):
                return folder.resolve().parent
    return None


# a package's file, or, as in some forks, those of packages in a folder without a file of its own
_PACKAGES_FILES = ("__init__.py", "*/__init__.py")


def fork_package(path: Path) -> str | None:
    """Return the package of a checkout that registers tasks as legged_gym does; None if it has not exactly one."""
    path = path.resolve()
    candidates = [folder for folder in (path, *path.glob("*/")) if any(folder.glob("*/task_registry.py"))]
    packages = [folder.name for folder in candidates if (folder / "envs" / "__init__.py").is_file()]
    if len(packages) != 1 or packages[0] in PACKAGES:
        return None
    _packages.add(packages[0])
    return packages[0]


_REPOSITORIES = {
    "isaacgymenvs": "https://github.com/isaac-sim/IsaacGymEnvs",
    "legged_gym": "https://github.com/leggedrobotics/legged_gym",
}


_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # colours of a terminal


def one_line(error: BaseException, folder: Path | None = None, printed: str = "") -> str:
    """Describe an error of a task's code with its place, e.g. ``ant.py:139: NotImplementedError: ...``.

    Code that called ``exit`` said why in the last line that it ``printed``.
    """
    frames = traceback.extract_tb(error.__traceback__)
    packages = {Path(str(module.__file__)).resolve().parent for module in (envcoder_bench, isaacgym_mujoco)}
    outside = [f for f in frames if packages.isdisjoint(Path(f.filename).resolve().parents)]
    inside = [f for f in outside if "site-packages" not in f.filename]
    if folder is not None:
        inside = [f for f in inside if folder in Path(f.filename).resolve().parents] or inside
    where = f"{inside[-1].filename}:{inside[-1].lineno}: " if inside else ""
    if isinstance(error, SyntaxError):
        where = f"{error.filename}:{error.lineno}: "
    if isinstance(error, SystemExit):
        last = _ESCAPES.sub("", printed).strip().splitlines()[-1:]
        return f"{where}its code called exit({error.code})" + "".join(f" after it printed: {line}" for line in last)
    text = str(error)
    script = re.findall(r'File "([^"]+)", line (\d+)', text) if "TorchScript interpreter" in text else []
    if script:  # the message has a traceback of its own, and ends with the reason
        where, text = "{}:{}: ".format(*script[-1]), text.strip().splitlines()[-1].removeprefix("RuntimeError: ")
    reason = " ".join(text.split()) + remedy(error) or "no message"
    return f"{where}{type(error).__name__}: {reason}"


def package_folders(path: Path) -> tuple[Path, ...]:
    """Return the folders from which a file and its package may import: its own and those above, up to the package's.

    Repositories import by the package's name, and, as scripts do, from a folder within the package. A folder without
    ``__init__.py`` in a package is a part of it, as for Python.
    """
    folders = [path.parent]
    while any((folder / "__init__.py").is_file() for folder in (folders[-1], folders[-1].parent)):
        folders.append(folders[-1].parent)
    return tuple(folders)


def folder_above(path: Path, error: ModuleNotFoundError) -> Path | None:
    """Return the nearest folder above a file from which the module that it lacks can be imported; None if none can."""
    name = (error.name or "").partition(".")[0]
    files = (f"{name}.py", *(f"{name}/{file}" for file in _PACKAGES_FILES))
    kinds = (files[:2], files[2:])  # packages without a file of their own last: other folders look like them
    above = (up for kind in kinds for up in path.parents if any(any(up.glob(file)) for file in kind))
    return next(above, None) if name else None


def load_file(path: Path) -> ModuleType:
    """Execute a Python file as a module; as a module of its package if it imports relatively or in a circle.

    Exceptions of the file are not caught.
    """
    try:
        return _execute(path)
    except ImportError as error:
        circle = re.search("partially initialized module '([^'.]+)", str(error))
        if circle is None and "attempted relative import" not in str(error):
            raise
        if circle is None:
            homes = package_folders(path)[1:]
        else:  # the package may lack a file of its own
            homes = tuple(up.parent for up in path.parents if up.name == circle.group(1))
        if not homes:
            raise
    parts = path.relative_to(homes[-1]).with_suffix("").parts
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def _execute(path: Path) -> ModuleType:
    name = f"isaacgym_task_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # TorchScript and dataclasses look it up
    spec.loader.exec_module(module)
    return module


def pick(names: Any, name: str, what: str) -> Any:
    """Return an entry of a mapping. Raises ValueError with near matches."""
    if name in names:
        return names[name]
    raise ValueError(
        f"{what} has no task '{name}'{near_matches(name, names)}; its tasks are {', '.join(sorted(names))}"
    )
