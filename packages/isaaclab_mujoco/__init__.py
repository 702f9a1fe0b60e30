"""Isaac Lab 2.x on MuJoCo: Isaac Lab's own Python, unmodified, on another simulator.

``install()`` replaces what lies below Isaac Lab: Omniverse's modules are fakes, the stage is a dict of paths, and
``omni.physics.tensors`` are views of a simulation of MuJoCo.
"""

import logging
import os

__version__ = "0.1.0"
NOTE = "isaaclab_mujoco: Isaac Lab on MuJoCo's physics, not on Isaac Sim; results are those of MuJoCo."

_log = logging.getLogger("isaaclab_mujoco")


def install() -> None:
    """Make Isaac Lab importable, on MuJoCo; ``ISAACLAB_PATH`` has its checkout, unless it is installed.

    Raises:
        isaaclab_mujoco.errors.UserError: there is no Isaac Lab, or one of another version.
    """
    from isaaclab_mujoco import checkout
    from isaaclab_mujoco.stage import changes

    source = checkout.find()
    os.environ.setdefault("MUJOCO_GL", "disable")
    checkout.put_on_path(source)
    if changes.install():
        _log.warning(NOTE)
