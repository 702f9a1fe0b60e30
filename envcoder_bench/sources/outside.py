"""Tasks from outside the package: a folder, or a class in a module that can be imported.

The modules of such a task are importable as ``envcoder_bench.tasks.<Name>``, so that candidates can build on its
baselines: ``from envcoder_bench.tasks.Pendulum.human import compute_reward``.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from envcoder_bench.core.folders import cache_folder
from envcoder_bench.core.yaml_files import parse_plain
from envcoder_bench.sources.shipped import TASKS_FOLDER
from envcoder_bench.sources.sim_spec import check_class, check_files, is_task_class, sim_spec, task_digest
from envcoder_bench.tasks.sim_task import SimTask
from envcoder_bench.tasks.spec import TaskSpec
from envcoder_bench.tasks.task_code import task_code

PACKAGE = "envcoder_bench.tasks"  # the package in which tasks from outside are mounted
CODE, CONFIG, TRAIN = "task.py", "task.yaml", "train.yaml"


def from_folder(folder: Path) -> TaskSpec:
    """Load the task of a folder with ``task.py``, its model, both baselines and ``task.yaml`` or ``<Name>.yaml``.

    Raises:
        ValueError: a file is missing or invalid.
    """
    folder = Path(os.path.abspath(folder))
    code = folder / CODE
    if not code.is_file():
        raise ValueError(f"{folder} is not a task's folder: it has no {CODE}; see docs/add_a_task.md")
    # the folder becomes a package, so that task.py is importable, and candidates can import the baselines
    config, name = _config(folder)
    mount(name, folder, fresh=True)
    with _loading(folder, f"{PACKAGE}.{name}"):
        module = importlib.import_module(f"{PACKAGE}.{name}.task")
    return _spec(_class_in(module, name, code), folder, config, str(folder))


def from_module(source: str) -> TaskSpec:
    """Load the task of a class, ``module:Class``; its other files are beside the module.

    Modules in the working folder are found, too.

    Raises:
        ValueError: as ``from_folder``.
    """
    path, _, class_name = source.partition(":")
    if not all(part.isidentifier() for part in path.split(".")):
        raise ValueError(f"--task {source}: {path} is not the name of a module, such as my_robots.pendulum")
    # the working folder is searched for this import only
    importable = os.getcwd() in sys.path
    if not importable:
        sys.path.insert(0, os.getcwd())
    try:
        with _loading(Path.cwd(), path, f"--task {source}: "):
            module = importlib.import_module(path)
    finally:
        if not importable:
            sys.path.remove(os.getcwd())
    if not hasattr(module, class_name):
        raise ValueError(f"--task {source}: {path} has no class {class_name}")
    if module.__file__ is None:
        raise ValueError(f"--task {source}: {path} is not a file: give the module that defines the class")
    folder = Path(module.__file__).resolve().parent
    config, name = _config(folder)
    mount(name, folder, fresh=True)
    return _spec(getattr(module, class_name), folder, config, source)


def mount(name: str, folder: Path, fresh: bool = False) -> None:
    """Make a folder's modules importable as ``envcoder_bench.tasks.<name>``.

    ``fresh`` forgets modules that were imported from it, whose files may have changed. A folder in the cache replaces
    another one beside it, which was written for another config of the task.

    Raises ValueError for a name in use.
    """
    present = sys.modules.get(f"{PACKAGE}.{name}")
    if (TASKS_FOLDER / name).exists() or (TASKS_FOLDER / f"{name}.py").exists():
        raise ValueError(f"{folder}: a task cannot be named {name}, which is a module of {PACKAGE}: rename it")
    before = None if present is None else Path(next(iter(present.__path__)))
    if before == folder and not fresh:
        return
    generated = cache_folder() in folder.parents and before is not None and before.parent == folder.parent
    if before not in (None, folder) and not generated:
        raise ValueError(f"{folder}: a task named {name} is in {before}: rename one, in class and YAML")
    unmount(name)
    package = ModuleType(f"{PACKAGE}.{name}", f"The task in {folder}.")
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package


def unmount(name: str) -> None:
    """Remove a task's modules."""
    prefix = f"{PACKAGE}.{name}"
    for module in [module for module in sys.modules if module == prefix or module.startswith(f"{prefix}.")]:
        del sys.modules[module]


@contextmanager
def restored_on_error() -> Iterator[None]:
    """Undo what was mounted in the block if it raises: a refused task replaces none that was found before."""
    before = _mounted()
    try:
        yield
    except BaseException:
        for name in _mounted():
            del sys.modules[name]
        sys.modules.update(before)
        raise


def _mounted() -> dict[str, ModuleType]:
    """Return the modules of all mounted tasks; their packages have no ``__spec__``, because nothing imported them."""
    loaded = [(name, module) for name, module in sys.modules.items() if name.startswith(f"{PACKAGE}.")]
    packages = tuple(name for name, module in loaded if getattr(module, "__spec__", 0) is None)
    inside = tuple(f"{name}." for name in packages)
    return {name: module for name, module in loaded if name in packages or name.startswith(inside)}


def _spec(task_class: Any, folder: Path, config: Path, source: str) -> TaskSpec:
    check_class(task_class, str(folder / CODE) if ":" not in source else f"--task {source}")
    _, name = _config(folder)
    if task_class.name != name:
        raise ValueError(f"{config}: its name is {name}, and that of {task_class.__name__} is {task_class.name}")
    train = next((path for path in (folder / TRAIN, folder / f"{name}PPO.yaml") if path.is_file()), None)
    spec = sim_spec(task_class, folder, config, train, source, task_digest(folder, folder / task_class.model))
    check_files(spec)
    return spec


def _config(folder: Path) -> tuple[Path, str]:
    """Return the task's YAML file and its name."""
    path = folder / CONFIG
    if not path.is_file():
        files = [p for p in sorted(folder.glob("*.yaml")) if p.name != TRAIN and not p.stem.endswith("PPO")]
        if len(files) != 1:
            which = f"has {', '.join(p.name for p in files)}" if files else "has none"
            raise ValueError(f"{folder}: the task's numbers are in {CONFIG} or <Name>.yaml, and this folder {which}")
        path = files[0]
    try:
        content = parse_plain(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{path}: 'name' must be the task's name, such as Pendulum, got {name!r}")
    return path, name


def _class_in(module: ModuleType, name: str, code: Path) -> type[SimTask]:
    """Return the task class that a module defines; if there are several, the one with this name."""
    defined = [x for x in vars(module).values() if isinstance(x, type) and x.__module__ == module.__name__]
    tasks = list(filter(is_task_class, defined))
    named = [task for task in tasks if getattr(task, "name", None) == name]
    if len(named or tasks) != 1:
        names = ", ".join(x.__name__ for x in tasks or defined) or "no class"
        raise ValueError(
            f"{code} must define one class derived from envcoder_bench.tasks.SimTask, named {name}: it has {names}"
        )
    return (named or tasks)[0]


@contextmanager
def _loading(folder: Path, module: str, where: str = "") -> Iterator[None]:
    """Convert exceptions of a task's code, and forget the modules that it loaded."""
    before = set(sys.modules)
    try:
        with task_code(folder, where):
            yield
    except BaseException:
        for name in set(sys.modules) - before:
            if name == module or name.startswith(f"{module}."):
                del sys.modules[name]
        raise
