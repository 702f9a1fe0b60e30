"""The package that ``install()`` makes ``isaacgym``: its modules, the recorded scene, and the objects of tasks."""

from types import ModuleType
from typing import Any

import isaacgym_mujoco


def __getattr__(name: str) -> Any:
    if name == "__implementation__":
        return isaacgym_mujoco.__implementation__
    if name == "rlgpu":  # a module of older previews that ASE and PHC import and do not use
        return ModuleType("isaacgym.rlgpu")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
