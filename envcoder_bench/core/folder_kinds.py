"""What a folder with a config.yaml holds: a run, a search or a grid."""

import os
import re
from pathlib import Path

from envcoder_bench.core.shell import resume_command, shown

RUN, SEARCH, GRID = "run", "search", "grid"
_MARKS = {"candidates": RUN, "llm": SEARCH, "arenas": GRID}  # a key of the config that only this kind has
_RESUMED_BY = {RUN: "eval-shapers", SEARCH: "auto-shape", GRID: "eval-policies"}


def folder_kind(path: str | os.PathLike[str]) -> str | None:
    """Return what a folder holds; None if that cannot be told."""
    try:
        text = (Path(path) / "config.yaml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    keys = set(re.findall(r"^(\w+):", text, re.MULTILINE))
    kinds = {kind for key, kind in _MARKS.items() if key in keys}
    return kinds.pop() if len(kinds) == 1 else None


def other_kind(path: str | os.PathLike[str], wanted: str) -> str | None:
    """Return an error message if a folder holds something else than what is ``wanted``; None otherwise."""
    kind = folder_kind(path)
    if kind is None or kind == wanted:
        return None
    folder = shown(Path(path))
    runs = f"its runs are {folder}/final and {folder}/rounds/<k>/run, and " if kind == SEARCH and wanted == RUN else ""
    return f"{folder} holds a {kind}, not a {wanted}; {runs}{resume_command(Path(path), _RESUMED_BY[kind])} resumes it"
