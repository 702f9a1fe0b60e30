"""An open implementation of the ``isaacgym`` interface on MuJoCo, written from call sites and public documentation.

    python -m isaacgym_mujoco train.py task=Ant

The modules ``gymapi``, ``gymtorch``, ``gymutil``, ``torch_utils`` and ``terrain_utils`` of ``api/`` are as in Isaac
Gym. They are importable as ``isaacgym.gymapi`` and so on only after ``install()``, and only if no other ``isaacgym`` is
installed.

Attributes:
    __implementation__: name and version; NVIDIA's package does not have this attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mujoco_batches  # noqa: F401, before MuJoCo: where OpenGL is missing, it imports that without

if TYPE_CHECKING:
    from isaacgym_mujoco.import_hook import install

    __implementation__: str

__version__ = "0.1.0"
__all__ = ["__implementation__", "__version__", "install"]


def __getattr__(name: str) -> Any:
    """Import attributes lazily, so that the helpers for tensors can be imported without a simulator."""
    if name == "install":
        from isaacgym_mujoco.import_hook import install

        return install
    if name == "__implementation__":
        from importlib.metadata import version

        return f"isaacgym_mujoco {__version__} on MuJoCo {version('mujoco')}"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
