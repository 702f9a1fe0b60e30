"""The tasks of this package, by their names."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import envcoder_bench.tasks
from envcoder_bench.core.folders import project_folder
from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:  # they import torch, which the names of tasks do not need
    from envcoder_bench.tasks.sim_task import SimTask
    from envcoder_bench.tasks.spec import TaskSpec

TASKS_FOLDER = Path(next(iter(envcoder_bench.tasks.__path__))).resolve()
FOLDERS = {  # the key is the task's name; in the order of docs/tasks.md
    "Cartpole": "cartpole",
    "CartpoleSwingup": "cartpole_swingup",
    "Ant": "ant",
    "Humanoid": "humanoid",
    "Anymal": "anymal",
    "AnymalTerrain": "anymal_terrain",
    "SpotTerrain": "spot_terrain",
    "FrankaCubeStack": "franka_cube_stack",
    "AllegroHand": "allegro_hand",
}


def shipped_class(name: str) -> type[SimTask]:
    """Return the class of a task of this package."""
    return getattr(importlib.import_module(f"envcoder_bench.tasks.{FOLDERS[name]}.task"), name)


class ShippedTasks(TaskSource):
    """The tasks of this package."""

    def claims(self, address: str) -> bool:
        return address in FOLDERS

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.sources.sim_spec import sim_spec

        cfg, home = project_folder("cfg"), TASKS_FOLDER / FOLDERS[address]
        config, train = cfg / "task" / f"{address}.yaml", cfg / "train" / f"{address}PPO.yaml"
        return sim_spec(shipped_class(address), home, config, train)
