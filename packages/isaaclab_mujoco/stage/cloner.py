"""``isaacsim.core.cloner``: where the environments are."""

import math
from typing import Any

import numpy as np

from isaaclab_mujoco.stage.prims import STAGE


class GridCloner:
    """Environments on a square grid; the stage has the prims of the first one alone."""

    def __init__(self, spacing: float = 1.0, num_per_row: int = -1, stage: Any = None) -> None:
        self._spacing = spacing

    def define_base_env(self, path: str) -> None:
        STAGE.add(path)

    def generate_paths(self, root_path: str, num_paths: int) -> list[str]:
        return [f"{root_path}_{i}" for i in range(num_paths)]

    def clone(self, source_prim_path: str, prim_paths: list[str], **_: Any) -> np.ndarray:
        """Return the positions of the environments, ``(num_envs, 3)``, in Isaac Sim's order."""
        n = len(prim_paths)
        rows = math.ceil(n / max(1, int(math.sqrt(n))))
        columns = math.ceil(n / rows)
        row, column = np.divmod(np.arange(n), columns)
        x = (rows - 1) / 2 * self._spacing - row * self._spacing
        y = column * self._spacing - (columns - 1) / 2 * self._spacing
        STAGE.origins = np.stack([x, y, np.zeros(n)], axis=1)
        return STAGE.origins

    def replicate_physics(self, *_: Any, **__: Any) -> None:
        """Do nothing: environments are simulated separately."""

    filter_collisions = replicate_physics
