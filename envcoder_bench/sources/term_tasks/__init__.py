"""Tasks of frameworks whose configs are terms, such as mjlab and Isaac Lab: what such a source shares with the others.

A *dialect* (``dialect.py``) says how a framework writes its configs and what its managers are called; a *world*
(``world.py``) is the scene and the simulation that all groups share. ``patches.py`` applies what candidates write in
the framework's words, and ``sections.py`` gives them functions for it. A ``Block`` (``block.py``) is the framework's
environment for groups of one config, with its own managers, and ``terms.py`` evaluates terms for all groups at once.
Where a curriculum sets numbers for single groups (``group_curricula.py``), ``settings.py`` runs shared code with the
numbers of each, and ``idle.py`` says when the curriculum need not be called.
The framework's functions run unmodified: ``env_ids.py`` and ``draws.py`` give them fixed shapes and random numbers that
do not depend on other groups, ``parts.py`` and ``on_device.py`` make CUDA graphs of them, and ``checkpoint.py`` keeps
what they hold.
"""

SECTIONS = ("rewards", "observations", "terminations", "commands", "events", "curriculum")  # that candidates patch
