"""Tasks of Isaac Gym code: VecTasks of IsaacGymEnvs and LeggedRobots of legged_gym, driven by their own methods.

``find_source.py`` finds a task's class and config, ``probe.py`` learns its properties from a small simulation with a
run's config, and ``spec.py`` writes its baselines and YAML files. ``isaac_task.py`` adapts it, with
``driver.py`` for its step and resets, ``draws.py`` for its random numbers, and ``tensors.py``. The importable
``isaacgym`` simulates: NVIDIA's if it is installed, else this project's implementation on MuJoCo.

This file imports neither torch nor a simulator: the command line asks it which ``--task`` is an address.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:
    from envcoder_bench.tasks.spec import TaskSpec

ISAACGYMENVS, LEGGED_GYM = PREFIXES = ("isaacgymenvs:", "legged_gym:")
CONFIG_MARK = "@"  # between a task and its YAML: my_task.py:MyTask@my.yaml, legged_gym:go2@my.yaml
FILE = re.compile(r"(?P<file>[^:@]+\.py):(?P<name>\w+)(@(?P<config>.+))?")


class IsaacGymTasks(TaskSource):
    """Tasks of Isaac Gym code: ``isaacgymenvs:Ant``, ``legged_gym:a1`` and ``file.py:Class``."""

    prefixes = PREFIXES

    def claims(self, address: str) -> bool:
        return super().claims(address) or FILE.fullmatch(address) is not None

    def with_config(self, address: str, config: str | None) -> tuple[str, str | None]:
        """Addresses of files and of legged_gym take up ``--task_config``."""
        takes_config = FILE.fullmatch(address) or address.startswith(LEGGED_GYM)
        if takes_config and CONFIG_MARK not in address and config is not None:
            return f"{address}{CONFIG_MARK}{config}", None
        return address, config

    def file(self, address: str) -> str:
        match = FILE.fullmatch(address)
        return match["file"] if match else address

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.sources.isaacgym_tasks.spec import isaac_spec

        return isaac_spec(address)
