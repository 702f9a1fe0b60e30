"""Which candidate files a run evaluates."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Sequence

from envcoder_bench.errors import near_matches
from envcoder_bench.tasks.base import BASELINES

_NAME = re.compile(r"[\w.+-]+( [\w.+-]+)*")
FOLDER = "user_functions"


def find_candidates(paths: Sequence[Path], task_name: str, root: Path) -> List[Path]:
    """List candidate files: those of ``paths`` (a folder stands for its ``*.py`` in sorted order), else the task's own.

    The task's own are in ``root/user_functions/<Task>/``, or in ``root/user_functions/`` if there is no such folder.
    Files whose name starts with ``_`` are skipped.

    Raises:
        ValueError: a path does not exist or is no .py file, two candidates have one name, a candidate has a baseline's
            name, or there are none.
    """
    if not paths:
        folder = Path(root) / FOLDER / task_name
        paths = [folder if folder.is_dir() else folder.parent]
        if not paths[0].is_dir():
            raise ValueError(f"no candidates found: there is neither {folder} nor {folder.parent}")
    found: List[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found += sorted(file for file in path.glob("*.py") if file.is_file() and not file.name.startswith("_"))
        elif not path.exists():
            siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
            raise ValueError(f"{path} does not exist{near_matches(path.name, siblings)}")
        elif path.suffix != ".py":
            raise ValueError(f"{path} is no candidate: a candidate is a .py file")
        else:
            found.append(path)
    if not found:
        looked = ", ".join(str(path) for path in paths)
        raise ValueError(f"no candidates found in {looked}: a candidate is a .py file whose name starts without _")
    _refuse_clashes(found)
    return found


def select(paths: Sequence[Path], positions: str) -> List[Path]:
    """Pick candidates by their positions, e.g. ``"0,2,5"``.

    Raises:
        ValueError: a position is no number, out of range or named twice.
    """
    chosen: List[int] = []
    for word in positions.split(","):
        try:
            position = int(word)
        except ValueError:
            raise ValueError(f"candidate position {word.strip()!r} is not a number: write e.g. 0,2,5") from None
        if not 0 <= position < len(paths):
            listed = ", ".join(f"{i} {path.stem}" for i, path in enumerate(paths))
            raise ValueError(f"no candidate at position {position}: there are {len(paths)} ({listed})")
        if position in chosen:
            raise ValueError(f"candidate position {position} is named twice")
        chosen.append(position)
    return [paths[position] for position in chosen]


def _refuse_clashes(found: Sequence[Path]) -> None:
    names: Dict[str, Path] = {}
    for path in found:
        if not _NAME.fullmatch(path.stem):
            allowed = "letters, digits, - _ . + and single spaces"
            raise ValueError(f"{path.name!r}: rename it: a candidate's name is made of {allowed}")
        if path.stem in BASELINES:
            raise ValueError(f"{path} has a baseline's name: rename it, {' and '.join(BASELINES)} are taken")
        if path.stem in names:
            raise ValueError(f"two candidates are named {path.stem}: {names[path.stem]} and {path}; rename one")
        names[path.stem] = path
