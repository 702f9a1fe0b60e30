"""Tasks of mjlab, ``mjlab:NAME``: its scenes, terms, commands, events and curricula on slices of one simulation.

``source.py`` finds a task in mjlab's registry, ``spec.py`` learns its properties and writes its baselines, and
``task.py`` adapts it. ``world.py`` is the scene and the simulation that all groups share, ``view.py`` shows some of its
environments to mjlab's code, and ``dialect.py`` says what ``term_tasks/`` must know of mjlab's configs and managers.

This file imports neither torch nor mjlab: the command line asks it which ``--task`` is an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:
    from envcoder_bench.tasks.spec import TaskSpec

PREFIX = "mjlab:"


class MjlabTasks(TaskSource):
    """Tasks of mjlab: ``mjlab:NAME`` and ``mjlab:PACKAGE:NAME``."""

    prefixes = (PREFIX,)
    titled_by_address = True

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.sources.mjlab_tasks.spec import mjlab_spec

        return mjlab_spec(address)
