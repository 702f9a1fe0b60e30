"""Tasks of Isaac Gym code: VecTasks of IsaacGymEnvs and LeggedRobots of legged_gym, driven by their own methods.

``find_source.py`` finds a task's class and config, ``probe.py`` learns its properties from a small simulation with a
run's config, and ``spec.py`` makes a task class, its baselines and YAML files. ``isaac_task.py`` adapts it, with
``driver.py`` for its step and resets, ``draws.py`` for its random numbers, and ``tensors.py``. The importable
``isaacgym`` simulates: NVIDIA's if it is installed, else this project's implementation on MuJoCo.

This file imports neither torch nor a simulator: the command line asks it which ``--task`` is an address.
"""

import re

ISAACGYMENVS, LEGGED_GYM = PREFIXES = ("isaacgymenvs:", "legged_gym:")
CONFIG_MARK = "@"  # between a task and its YAML: my_task.py:MyTask@my.yaml, legged_gym:go2@my.yaml
FILE = re.compile(r"(?P<file>[^:@]+\.py):(?P<name>\w+)(@(?P<config>.+))?")


def is_isaac_address(task: str) -> bool:
    """Return whether a ``--task`` is ``isaacgymenvs:Ant``, ``legged_gym:a1`` or ``file.py:Class``."""
    return task.startswith(PREFIXES) or FILE.fullmatch(task) is not None


def with_task_config(task: str, config: str | None) -> tuple[str, str | None]:
    """Return a task's address and ``--task_config``, which addresses of files and of legged_gym take up."""
    takes_config = FILE.fullmatch(task) or task.startswith(LEGGED_GYM)
    if takes_config and CONFIG_MARK not in task and config is not None:
        return f"{task}{CONFIG_MARK}{config}", None
    return task, config
