"""Tasks of Isaac Lab 2.x, ``isaaclab:NAME``: scenes, terms, commands, events and curricula on ``isaaclab_mujoco``.

``source.py`` finds a task in gymnasium's registry, ``spec.py`` learns its properties, and ``task.py`` adapts it.
``world.py`` is the scene and the simulation that all groups share, ``view.py`` shows some of its environments to Isaac
Lab's code, and ``dialect.py`` says what ``term_tasks/`` must know of Isaac Lab's configs and managers.

This file imports neither torch nor Isaac Lab: the command line asks it which ``--task`` is an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:
    from envcoder_bench.tasks.spec import TaskSpec

PREFIX = "isaaclab:"


class IsaacLabTasks(TaskSource):
    """Tasks of Isaac Lab: ``isaaclab:NAME`` and ``isaaclab:PACKAGE:NAME``."""

    prefixes = (PREFIX,)
    titled_by_address = True

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.sources.isaaclab_tasks.spec import isaaclab_spec

        return isaaclab_spec(address)
