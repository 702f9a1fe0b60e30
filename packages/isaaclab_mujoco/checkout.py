"""Find Isaac Lab, a checkout or an installed package, and its version; and the packages of a project for it."""

import os
import re
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from isaaclab_mujoco.errors import UserError

VARIABLE = "ISAACLAB_PATH"
PACKAGES = ("isaaclab", "isaaclab_tasks", "isaaclab_assets", "isaaclab_rl", "isaaclab_mimic")
_NEEDED = f"set {VARIABLE} to a checkout of isaac-sim/IsaacLab, release/2.3.0"
_SOURCES, _BUILDS = ("source", "exts"), ("setup.py", "pyproject.toml")  # folders with packages, and what builds them
_THREE = ("isaaclab_newton", "isaaclab_physx")  # packages that came with 3.0


def find() -> Path:
    """Return the folder ``source`` of Isaac Lab 2.x.

    Raises:
        UserError: there is none, or it has another version.
    """
    given = os.environ.get(VARIABLE, "")
    if given:
        root = Path(given).expanduser()
        for folder in (root / "source", root, root / "isaaclab" / "source"):
            if (folder / "isaaclab" / "isaaclab" / "__init__.py").is_file():
                return _checked(folder, root)
        if (root / "source" / "extensions" / "omni.isaac.lab").is_dir():
            raise UserError(f"{VARIABLE}={given} is Isaac Lab 1.x; {_NEEDED}")
        raise UserError(f"{VARIABLE}={given} is not a checkout of Isaac Lab: it has no source/isaaclab; {_NEEDED}")
    spec = PathFinder.find_spec("isaaclab")
    if spec is None or spec.origin is None:
        raise UserError(f"Isaac Lab was not found: {_NEEDED}")
    package = Path(spec.origin).parent
    # the wheel has a folder "source" in its package; an editable installation is the folder of a checkout
    for folder in (package / "source", package.parent.parent):
        if (folder / "isaaclab" / "isaaclab" / "__init__.py").is_file():
            return _checked(folder, package)
    raise UserError(f"{package} is not Isaac Lab 2.x; {_NEEDED}")


def _checked(source: Path, root: Path) -> Path:
    version_file = source.parent / "VERSION"
    version = version_file.read_text().strip() if version_file.is_file() else ""
    if any((source / name).is_dir() for name in _THREE) or re.match(r"[013-9]\.|2\.[4-9]", version):
        raise UserError(f"{root} is Isaac Lab {version or '3.x'}; isaaclab_mujoco runs 2.0 to 2.3: {_NEEDED}")
    return source


def put_on_path(source: Path) -> None:
    """Make the packages of Isaac Lab importable, before anything else of their names."""
    folders = [str(source / name) for name in PACKAGES if (source / name / name).is_dir()]
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]


def project_of(script: Path) -> Path:
    """Return the folder of a script's project: the nearest with packages or a repository, else the nearest package."""
    for parts in ((*_SOURCES, ".git"), _BUILDS):
        for folder in script.parents:
            if any((folder / part).exists() for part in parts):
                return folder
    return script.parent


def project_packages(project: Path) -> list[str]:
    """Return the folders of a project that its installation would put on the path, installed or not."""
    inside = [folder for name in _SOURCES for folder in sorted((project / name).glob("*/"))]
    holders = [*inside, *sorted(project.glob("*/")), project]
    built = [x for x in holders if any((x / name).is_file() for name in _BUILDS) or (x in inside and _has_package(x))]
    return list(dict.fromkeys(str(x / "src" if (x / "src").is_dir() else x) for x in built))


def _has_package(folder: Path) -> bool:
    return next(folder.glob("*/__init__.py"), None) is not None
