"""MuJoCo's import where the library of OpenGL that the variable ``MUJOCO_GL`` names is missing.

Imports ``mujoco`` again, with ``MUJOCO_GL=disable``, if its import fails.

Why: MuJoCo imports the library with itself, and raises what PyOpenGL raises without it. Physics needs no pictures.

Upstream: no issue was found; MuJoCo 4.0.0 ignores an ImportError there, but PyOpenGL raises an AttributeError.
"""

import os

_NAMES = ("egl", "osmesa")


def import_without_opengl() -> None:
    """Import MuJoCo with or without OpenGL, if ``MUJOCO_GL`` names a library; otherwise do nothing."""
    wanted = os.environ.get("MUJOCO_GL", "")
    if wanted.lower().strip() not in _NAMES:
        return
    try:
        import mujoco
    except ImportError:  # there is no MuJoCo: whoever needs it says so
        pass
    except Exception:
        os.environ["MUJOCO_GL"] = "disable"
        try:
            import mujoco  # noqa: F401
        finally:
            os.environ["MUJOCO_GL"] = wanted
