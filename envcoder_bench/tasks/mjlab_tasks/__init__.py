"""Tasks of mjlab, ``mjlab:NAME``: its scenes, terms, commands, events and curricula on slices of one simulation.

``source.py`` finds a task in mjlab's registry, ``spec.py`` makes a task class and baselines of it, and ``task.py``
adapts it. ``world.py`` is the scene and the simulation that all groups share; a ``Block`` (``block.py``) is mjlab's
environment for groups of one config, with mjlab's own managers, and ``terms.py`` evaluates terms for all groups at
once. mjlab's functions run unmodified: ``env_ids.py`` and ``draws.py`` give them fixed shapes and random numbers that
do not depend on other groups. ``patches.py`` applies what candidates write in mjlab's words.

This file imports neither torch nor mjlab: the command line asks it which ``--task`` is an address.
"""

PREFIX = "mjlab:"
SECTIONS = ("rewards", "observations", "terminations", "commands", "events", "curriculum")  # that candidates patch


def is_mjlab_address(task: str) -> bool:
    """Return whether a ``--task`` is ``mjlab:NAME`` or ``mjlab:PACKAGE:NAME``."""
    return task.startswith(PREFIX)
