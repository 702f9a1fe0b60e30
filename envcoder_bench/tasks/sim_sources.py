"""Sources of tasks of a class and a model: this package's, by their names, and those of users."""

from __future__ import annotations

import importlib
import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from envcoder_bench.core.folders import project_folder
from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:  # they import torch, which the names of tasks do not need
    from envcoder_bench.tasks.sim_task import SimTask
    from envcoder_bench.tasks.spec import TaskSpec

GROUP = "envcoder_bench.tasks"  # of entry points, whose name is the task's and whose value is ``module:Class``
FOLDERS = {  # by the task's name
    "AllegroHand": "allegro_hand",
    "Ant": "ant",
    "Anymal": "anymal",
    "AnymalTerrain": "anymal_terrain",
    "Cartpole": "cartpole",
    "CartpoleSwingup": "cartpole_swingup",
    "FrankaCubeStack": "franka_cube_stack",
    "Humanoid": "humanoid",
    "SpotTerrain": "spot_terrain",
}


def shipped_class(name: str) -> type[SimTask]:
    """Return the class of a task of this package."""
    return getattr(importlib.import_module(f"envcoder_bench.tasks.{FOLDERS[name]}.task"), name)


class ShippedTasks(TaskSource):
    """The tasks of this package."""

    def claims(self, address: str) -> bool:
        return address in FOLDERS

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.tasks.sim_spec import sim_spec

        cfg, home = project_folder("cfg"), Path(__file__).resolve().parent / FOLDERS[address]
        config, train = cfg / "task" / f"{address}.yaml", cfg / "train" / f"{address}PPO.yaml"
        return sim_spec(shipped_class(address), home, config, train)


def installed_tasks() -> dict[str, str]:
    """Return the ``module:Class`` of tasks of installed packages, by name."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


class FolderTasks(TaskSource):
    """Tasks by their folder, by ``module:Class``, and by the name that an installed package registers."""

    def claims(self, address: str) -> bool:
        return ":" in address or os.path.isdir(address) or address in installed_tasks()

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.tasks import outside

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
        from envcoder_bench.tasks.sim_spec import digest

        model = spec.model_path
        return model is not None and spec.folder.is_dir() and spec.digest == digest(spec.folder, model)
