"""An open implementation of the ``isaacgym`` interface on MuJoCo, written from call sites and public documentation.

The modules ``gymapi``, ``gymtorch``, ``gymutil``, ``torch_utils`` and ``terrain_utils`` of ``api/`` are as in Isaac
Gym. They are importable as ``isaacgym.gymapi`` and so on only after ``install()``, and only if there is no other
``isaacgym``.

Attributes:
    __implementation__: name and version; NVIDIA's package has no such attribute.
"""

from importlib.metadata import version

from envcoder_bench.isaacgym.install import install

__implementation__ = f"envcoder_bench on MuJoCo {version('mujoco')}"
__all__ = ["__implementation__", "install"]
