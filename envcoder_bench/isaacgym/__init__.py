"""An open implementation of the ``isaacgym`` interface on MuJoCo: written from call sites and public documentation.

The modules are ``gymapi``, ``gymtorch``, ``gymutil``, ``torch_utils`` and ``terrain_utils``, as in Isaac Gym. They are
importable as ``isaacgym`` only after ``install()``, and only where no other ``isaacgym`` is found.
"""
