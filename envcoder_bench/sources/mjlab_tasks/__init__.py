"""Tasks of mjlab, ``mjlab:NAME``: its scenes, terms, commands, events and curricula on slices of one simulation.

``source.py`` finds a task in mjlab's registry, ``spec.py`` learns its properties and writes its baselines, and
``task.py`` adapts it. ``world.py`` is the scene and the simulation that all groups share; a ``Block`` (``block.py``) is
mjlab's environment for groups of one config, with mjlab's own managers, and ``terms.py`` evaluates terms for all groups
at once. mjlab's functions run unmodified: ``env_ids.py`` and ``draws.py`` give them fixed shapes and random numbers
that do not depend on other groups. ``patches.py`` applies what candidates write in mjlab's words, and ``sections.py``
gives them functions for it.

This file imports neither torch nor mjlab: the command line asks it which ``--task`` is an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envcoder_bench.tasks.source import TaskSource

if TYPE_CHECKING:
    from envcoder_bench.tasks.spec import TaskSpec

PREFIX = "mjlab:"
SECTIONS = ("rewards", "observations", "terminations", "commands", "events", "curriculum")  # that candidates patch


class MjlabTasks(TaskSource):
    """Tasks of mjlab: ``mjlab:NAME`` and ``mjlab:PACKAGE:NAME``."""

    prefixes = (PREFIX,)
    titled_by_address = True

    def find(self, address: str) -> TaskSpec:
        from envcoder_bench.sources.mjlab_tasks.spec import mjlab_spec

        return mjlab_spec(address)
