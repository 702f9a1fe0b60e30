"""The place of a run's task, which config.yaml names: the user may have moved it since."""

import os
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.tasks.registry import get_spec


def find_task(config: Path, cfg: RunConfig) -> None:
    """Load the task of the run with the file ``config``.

    Raises:
        UserError: it is not there any more, or it is another task.
    """
    try:
        name = get_spec(cfg.task_source or cfg.task.name, cfg.task).name
    except ValueError as error:
        raise UserError(f"{config}: {error}{remedy(cfg.task_source)}") from error
    if name != cfg.task.name:
        raise UserError(f"{config}: the task in {cfg.task_source} is {name}, and the run's is {cfg.task.name}")


def remedy(place: str | None, key: str = "task_source") -> str:
    """Say what to do about a task that is not found at ``place``, the value of ``key``; empty if a folder is there.

    Its files are then at fault, not the place. None is a task of an installed package.
    """
    if place is None or not (os.sep in place or ":" in place):
        return f": install its package again, or set {key} in this file to the task's folder"
    if os.path.isdir(place):
        return ""
    return f": move the task back to {place}, or set {key} in this file to its new place"
