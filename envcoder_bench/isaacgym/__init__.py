"""An open implementation of the ``isaacgym`` interface on MuJoCo, written from call sites and public documentation.

The modules are ``gymapi``, ``gymtorch``, ``gymutil``, ``torch_utils`` and ``terrain_utils``, as in Isaac Gym. They are
importable as ``isaacgym`` only after ``install()``, and only if there is no other ``isaacgym``.

Attributes:
    __implementation__: name and version; NVIDIA's package has no such attribute.
"""

from importlib.metadata import version

from envcoder_bench.isaacgym.install import install

__implementation__ = f"envcoder_bench on MuJoCo {version('mujoco')}"
__all__ = ["__implementation__", "install"]
