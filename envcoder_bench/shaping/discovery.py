"""Discovery of the candidate files of a run."""

import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.words import join_words
from envcoder_bench.tasks.base import BASELINES

# a name is used for a folder and in file names, and must be valid on every system: it does not begin like an option,
# a hidden file or a formula of a spreadsheet, and does not end in a dot
_NAME = re.compile(r"(?![.=+-])[\w.+=-]+( [\w.+=-]+)*(?<!\.)")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # devices on Windows
MAX_NAME = 100  # bytes of UTF-8; file names may have 255
FOLDER = "user_functions"


def find_candidates(paths: Sequence[Path], task_name: str, root: Path) -> list[Path]:
    """List candidate files: those of ``paths`` (a folder stands for its ``*.py`` in sorted order), else the task's own.

    The task's own are in ``root/user_functions/<Task>/``, or in ``root/user_functions/`` without such a folder.
    Files in a folder whose name starts with ``_`` or ``.`` are skipped.

    Raises:
        ValueError: a path does not exist or is not a .py file, a name is not valid on every system, two candidates have
            the same name, a candidate has a baseline's name, or nothing is left.
    """
    # the task's own folder, or the flat one
    if not paths:
        folder = Path(root) / FOLDER / task_name
        paths = [folder if folder.is_dir() else folder.parent]
        if not paths[0].is_dir():
            raise ValueError(f"no candidates found: there is neither {folder} nor {folder.parent}")
    files: list[Path] = []
    # files, and the files of folders
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.glob("*.py") if file.name[0] not in "_.")
            for file in inside:
                _refuse_broken_link(file)
            files += [file for file in inside if file.is_file()]
        elif not path.exists():
            _refuse_broken_link(path)
            siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
            raise ValueError(f"{path} does not exist{near_matches(path.name, siblings)}")
        elif path.suffix != ".py":
            raise ValueError(f"{path} is not a candidate: a candidate is a .py file")
        elif not path.is_file():
            raise ValueError(f"{path} is not a candidate: it is not a regular file")
        else:
            files.append(path)
    if not files:
        looked = ", ".join(str(path) for path in paths)
        why = "a candidate is a .py file whose name does not start with _; --candidates names files and folders"
        raise ValueError(f"no candidates found in {looked}: {why}")
    refuse_clashes(files)
    return files


def _refuse_broken_link(path: Path) -> None:
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link to {os.readlink(path)}, which does not exist")


def select(paths: Sequence[Path], positions: str) -> list[Path]:
    """Select candidates by their positions, e.g. ``"0,2,5"``.

    Raises:
        ValueError: a position is not a number, out of range, or given twice.
    """
    chosen: list[int] = []
    for word in positions.split(","):
        try:
            position = int(word)
        except ValueError:
            raise ValueError(f"candidate position {word.strip()!r} is not a number: write e.g. 0,2,5") from None
        if not 0 <= position < len(paths):
            choices = ", ".join(f"{i} {path.stem}" for i, path in enumerate(paths))
            raise ValueError(f"no candidate at position {position}: there are {len(paths)} ({choices})")
        if position in chosen:
            raise ValueError(f"candidate position {position} is given twice")
        chosen.append(position)
    return [paths[position] for position in chosen]


def refuse_clashes(files: Sequence[Path]) -> None:
    """Raise ValueError, as ``find_candidates`` does, for file names that are not valid or clash."""
    names: dict[str, Path] = {}
    for path in files:
        fault = name_fault(path.stem)
        if fault:
            raise ValueError(f"{path.name!r}: rename it: {fault}")
        # names that differ in case, or in the encoding of an accent, are one folder on some systems
        key = unicodedata.normalize("NFKC", path.stem).casefold()
        if key in BASELINES:
            raise ValueError(f"{path} has a baseline's name: rename it, {join_words(BASELINES)} are taken")
        if key in names:
            other = names[key]
            if other == path:
                raise ValueError(f"{path} is given twice")
            if other.stem == path.stem:
                raise ValueError(f"two candidates are named {path.stem}: {other} and {path}; rename one")
            raise ValueError(f"{other} and {path} have the same name on some systems: rename one")
        names[key] = path


def name_fault(name: str) -> str:
    """Return why a candidate's name is not a valid folder name on every system; empty if it is valid."""
    if not _NAME.fullmatch(name):
        allowed = "letters, digits, - _ . + = and single spaces"
        return f"a candidate's name consists of {allowed}, and must not begin with - + = or . or end with ."
    if _RESERVED.fullmatch(name):
        return f"{name} is a reserved name on Windows"
    if len(name.encode("utf-8", "surrogateescape")) > MAX_NAME:
        return f"its name is longer than {MAX_NAME} bytes"
    return ""
