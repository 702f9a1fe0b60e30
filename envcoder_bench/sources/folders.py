"""Tasks of users, of a class and a model: by their folder, by ``module:Class``, or by an installed package's name."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:  # it imports torch, which the names of tasks do not need
    from envcoder_bench.tasks.spec import TaskSpec

GROUP = "envcoder_bench.tasks"  # entry points: the name is the task's, the value is ``module:Class``


def installed_tasks() -> dict[str, str]:
    """Return the ``module:Class`` of tasks of installed packages, by name."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


class FolderTasks(TaskSource):
    """Tasks by their folder, by ``module:Class``, and by the name that an installed package registers."""

    def claims(self, address: str) -> bool:
        return ":" in address or os.path.isdir(address) or address in installed_tasks()

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.sources import outside

        installed = installed_tasks().get(address)
        if installed is None:
            return outside.from_folder(Path(address)) if os.path.isdir(address) else outside.from_module(address)
        spec = outside.from_module(installed)
        if spec.name != address:
            raise ValueError(
                f"the entry point {address} = {installed} is of a task named {spec.name}: rename one of them"
            )
        return spec

    def is_current(self, spec: TaskSpec) -> bool:
        from envcoder_bench.sources.sim_spec import task_digest

        model = spec.model_path
        return model is not None and spec.folder.is_dir() and spec.digest == task_digest(spec.folder, model)
