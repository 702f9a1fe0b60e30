"""Addresses of Isaac Gym tasks in ``--task``; this module imports neither torch nor a simulator."""

import re

ISAACGYMENVS, LEGGED_GYM = PREFIXES = ("isaacgymenvs:", "legged_gym:")
CONFIG_MARK = "@"  # between a file's class and its YAML: my_task.py:MyTask@my.yaml
FILE = re.compile(r"(?P<file>[^:@]+\.py):(?P<name>\w+)(@(?P<config>.+))?")


def is_isaac_address(task: str) -> bool:
    """Return whether a ``--task`` is ``isaacgymenvs:Ant``, ``legged_gym:a1`` or ``file.py:Class``."""
    return task.startswith(PREFIXES) or FILE.fullmatch(task) is not None
