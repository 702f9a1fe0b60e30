"""The registry of tasks: the one place where what ``--task`` says becomes a task.

The sources are asked one after the other: this package's tasks, Isaac Gym code (``isaacgymenvs:Ant``), mjlab
(``mjlab:NAME``), Isaac Lab (``isaaclab:PACKAGE:NAME``), those of installed packages, and folders, ``module:Class`` and
names of installed tasks.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from envcoder_bench.core.errors import message_line, near_matches
from envcoder_bench.sources.folders import FolderTasks, installed_tasks
from envcoder_bench.sources.shipped import FOLDERS, ShippedTasks
from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:  # it imports torch, which the names of tasks do not need
    from envcoder_bench.tasks.spec import TaskSpec

GROUP = "envcoder_bench.task_sources"  # entry points
# sources of this package that load what a task needs, so that a checkout works without an installation
_BUILT_IN = (
    "envcoder_bench.sources.isaacgym_tasks:IsaacGymTasks",
    "envcoder_bench.sources.mjlab_tasks:MjlabTasks",
    "envcoder_bench.sources.isaaclab_tasks:IsaacLabTasks",
)
_found: dict[str, TaskSpec] = {}  # so far, by name
_by_address: dict[str, TaskSpec] = {}  # those from outside the package
_broken: dict[str, str] = {}  # sources of other packages that cannot be used, and why


def task_names() -> list[str]:
    """Return the names of shipped tasks and of those of installed packages, sorted."""
    return sorted({*FOLDERS, *installed_tasks()})


def is_installed(task: str) -> bool:
    """Return whether this is the name of a shipped task or of an installed package's, and not a place of code."""
    return task in FOLDERS or task in installed_tasks()


def find_spec(task: str) -> TaskSpec:
    """Find a task by its name or its address; its code is loaded, and nothing that takes a while is simulated.

    Once a task from outside the package has been found, it is also known by its name.

    Raises:
        ValueError: the task does not exist, or a file of it is missing or invalid.
    """
    named = _found.get(task)
    if named is not None and named.source in (None, task):
        return named
    # a task from elsewhere may have been edited since: its name finds what its address does
    address = task if named is None else str(named.source)
    source = source_of(address)
    if source is None:
        raise ValueError(_unknown(address))
    if address in FOLDERS:
        if address in installed_tasks():
            where = installed_tasks()[address]
            raise ValueError(f"an installed package has a task named {address}, which is a shipped one: {where}")
        _found[address] = source.find(address)
        return _found[address]
    from envcoder_bench.sources.outside import mount, restored_on_error
    from envcoder_bench.tasks.sim_task import YAML_FILES

    before = _by_address.get(address) or _by_address.get(os.path.abspath(address))
    before = before and _by_address[before.address]  # the last one, by whichever address
    with restored_on_error():
        spec = before if before is not None and source.is_current(before) else _find_in(source, address)
        if spec.name in FOLDERS:
            raise ValueError(f"{spec.folder}: {spec.name} is a shipped task's name: choose another, in class and YAML")
        mount(spec.name, spec.folder)
    _found[spec.name] = _by_address[address] = _by_address[spec.address] = spec
    YAML_FILES[spec.name] = str(spec.config)
    return spec


def _find_in(source: TaskSource, task: str) -> TaskSpec:
    """Find a task in a source. Raises ValueError, also for an error in the code of another package's source."""
    try:
        return source.find(task)
    except Exception as error:
        home = type(source).__module__
        if not home.startswith("envcoder_bench.") and not isinstance(error, ValueError):
            reason = message_line(error)
            raise ValueError(f"--task {task}: its source {home} raises {type(error).__name__}: {reason}") from error
        if _broken and isinstance(source, FolderTasks) and isinstance(error, ValueError):
            raise ValueError(f"{error}; {'; '.join(_broken.values())}") from error
        raise


def check_task_name(task: str) -> None:
    """Raise ValueError as ``find_spec`` does."""
    if task not in FOLDERS:
        find_spec(task)


def outside_tasks() -> dict[str, TaskSpec]:
    """Return the tasks from outside the package that have been found so far, by name."""
    return {name: spec for name, spec in _found.items() if spec.digest}


def source_of(address: str) -> TaskSource | None:
    """Return the source that claims an address; None if there is none."""
    return next((source for source in _sources(address) if source.claims(address)), None)


def title_of(address: str, name: str) -> str:
    """Return how tables and plots name the task at an address."""
    source = source_of(address) if ":" in address else None
    return address if source is not None and source.titled_by_address else name


def file_of(address: str) -> str:
    """Return the file or folder that an address names; otherwise the address."""
    source = source_of(address)
    return address if source is None else source.file(address)


def with_task_config(address: str, config: str | None) -> tuple[str, str | None]:
    """Return an address and ``--task_config``, which addresses of some sources take up."""
    source = source_of(address)
    return (address, config) if source is None else source.with_config(address, config)


def _sources(address: str) -> Iterator[TaskSource]:
    """Yield the sources; those that must be imported only for an address with a colon."""
    yield ShippedTasks()
    if ":" in address:
        for address in _BUILT_IN:
            module, _, name = address.partition(":")
            yield getattr(importlib.import_module(module), name)()
        yield from _installed_sources()
    yield FolderTasks()


def _installed_sources() -> Iterator[TaskSource]:
    """Yield the sources of installed packages; one that cannot be imported costs only its own tasks."""
    _broken.clear()
    for point in entry_points(group=GROUP):
        try:
            source = point.load()()
            if not isinstance(source, TaskSource):
                raise TypeError(f"{point.value} is not a TaskSource of envcoder_bench.tasks.source")
        except Exception as error:
            reason = f"{type(error).__name__}: {message_line(error)}"
            _broken[point.name] = f"the source of tasks {point.name} = {point.value} cannot be used: {reason}"
        else:
            yield source


def _unknown(task: str) -> str:
    if os.sep in task or "/" in task:
        path = Path(task)
        siblings = [x.name for x in path.parent.iterdir() if x.is_dir()] if path.parent.is_dir() else []
        return f"unknown task '{task}': the folder does not exist{near_matches(path.name, siblings)}"
    return f"unknown task '{task}'{near_matches(task, task_names())}; there are {', '.join(task_names())}"
