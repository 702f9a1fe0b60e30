"""What ``isaacgym`` is after ``install()``: its modules, the recorded scene, and the objects that tasks create."""

from typing import Any

import isaacgym_mujoco


def __getattr__(name: str) -> Any:
    if name == "__implementation__":
        return isaacgym_mujoco.__implementation__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
