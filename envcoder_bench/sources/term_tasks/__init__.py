"""Tasks of frameworks whose configs are terms, such as mjlab and Isaac Lab: what such a source shares with the others.

A *dialect* (``dialect.py``) says how a framework writes its configs and what its managers are called; a *world*
(``world.py``) is the scene and the simulation that all groups share. ``patches.py`` applies what candidates write in
the framework's words, and ``sections.py`` gives them functions for it. A ``Block`` (``block.py``) is the framework's
environment for groups of one config, with its own managers, and ``terms.py`` evaluates terms for all groups at once.
Where a curriculum sets numbers for single groups, ``curricula/`` runs shared code with the numbers of each.
The framework's functions run unmodified: ``draws.py`` gives them random numbers that do not depend on other groups,
``graphs/`` fixed shapes and CUDA graphs, and ``checkpoint.py`` keeps what they hold.
"""

SECTIONS = ("rewards", "observations", "terminations", "commands", "events", "curriculum")  # that candidates patch
