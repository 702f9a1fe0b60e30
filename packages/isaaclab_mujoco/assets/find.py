"""Answer a robot's file, which may be a USD on a server, by a file on this machine.

The first of these that has one is taken: the runner's ``--asset NAME=FILE``, ``assets.yaml`` in the working folder,
the file itself if it is a URDF or MJCF, URDFs and MJCFs of the same name below the folder above the file's or those in
``roots``, of several that whose folders have most names of the file's path, the file itself if it is a USD that can be
read, robots that mjlab ships, and those of a checkout of MuJoCo Menagerie.
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from isaaclab_mujoco.errors import GIVE, AssetNotFound, UserError
from mujoco_batches.assets import usd

ENDINGS = (".urdf", ".xml", ".mjcf")
given: dict[str, str] = {}  # what a file's path ends with -> a file, by --asset and assets.yaml
answers: dict[str, str] = {}  # files' names -> the files that answered them
roots: list[Path] = []  # folders of the user's code
# robots of mjlab's asset zoo, by what is in the path of a USD of theirs
ZOO = {r"\bg1": "unitree_g1/xmls/g1.xml", r"\bgo1": "unitree_go1/xmls/go1.xml"}
# robots of MuJoCo Menagerie whose joints, bodies and frames are those that Isaac Lab's configs and tasks name
MENAGERIE = {r"\bh1(_minimal)?\.usd": "unitree_h1/h1.xml"}
VARIABLE = "MENAGERIE_ROOT"  # a checkout of Menagerie; its own package on PyPI reads the same variable


def robot_file(name: str) -> Path:
    """Return the file that answers a path or address, and note it."""
    file = _robot_file(name)
    answers[name.rpartition("/")[2]] = str(file)
    return file


def _robot_file(name: str) -> Path:
    """Return the file that answers a path or address.

    Raises:
        AssetNotFound: there is none.
        UserError: a given file does not exist.
    """
    for end, file in given.items():
        if _stem(name).endswith(_stem(end)):
            if not Path(file).is_file():
                raise UserError(f"{file} does not exist, and assets.yaml or --asset has it for {end}")
            return Path(file)
    path = Path(name)
    if path.suffix in ENDINGS and path.is_file():
        return path
    tried = [f"{path.stem}{ending}" for ending in ENDINGS]
    folders = [path.parent.parent, *roots] if path.parent.is_dir() else roots
    for folder in folders:
        named = [file for file in sorted(_files(folder)) if file.name in tried]
        if named:  # of several, that in folders of the names that the config says
            return max(named, key=lambda file: len({*file.parent.parts} & {*path.parent.parts}))
    unread = ""
    if path.suffix in usd.ENDINGS and path.is_file():
        unread = usd.obstacle(path)
        if not unread:
            return path
    for zoo, robots in _zoos():
        for pattern, file in robots.items():
            if re.search(pattern, name, re.IGNORECASE):
                if not (zoo / file).is_file():
                    raise UserError(f"{name}: {zoo} has no {file}")
                return zoo / file
    places = ", ".join(str(folder) for folder in folders) or "no folder"
    raise AssetNotFound(
        f"{name}: no URDF or MJCF is known for it. Tried {', '.join(tried)} in {places}, mjlab's robots "
        f"({'installed' if find_spec('mjlab') else 'mjlab is not installed'}) and Menagerie's "
        f"({VARIABLE} is {os.environ.get(VARIABLE) or 'not set'}){unread and f'; as to the USD, {unread}'}. "
        f"Give one: {GIVE.format(path.name)}"
    )


def _zoos() -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield folders of robots on this machine, and the files that answer the names of theirs."""
    mjlab = find_spec("mjlab")
    if mjlab is not None and mjlab.origin is not None:
        yield Path(mjlab.origin).parent / "asset_zoo" / "robots", ZOO
    if os.environ.get(VARIABLE):
        yield Path(os.environ[VARIABLE]).expanduser(), MENAGERIE


def read_assets_file(path: Path) -> None:
    """Add the lines ``NAME: FILE`` of ``assets.yaml`` to ``given``; files are relative to its folder.

    Raises:
        UserError: it is not a mapping of names to files.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        rows = OmegaConf.to_container(OmegaConf.load(path))
    except (OmegaConfBaseException, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    if not isinstance(rows, dict) or not all(isinstance(file, str) for file in rows.values()):
        raise UserError(f"{path}: it must have lines NAME: FILE")
    for name, file in rows.items():
        given.setdefault(str(name), str(path.parent / Path(str(file)).expanduser()))


def _stem(name: str) -> str:
    return name.lower().removesuffix(".usd").removesuffix(".usda")


@cache
def _files(folder: Path) -> list[Path]:
    files = [file for ending in ENDINGS for file in folder.rglob(f"*{ending}")]
    return [file for file in files if not _is_installed(file.relative_to(folder))]


def _is_installed(file: Path) -> bool:
    """Whether a file is of an installed package, or in a hidden folder: another robot may have its name."""
    return any(part == "site-packages" or part.startswith(".") for part in file.parts[:-1])
