"""Locations of folders beside the package, and what a folder with a config.yaml holds: a run or what has runs."""

import contextlib
import importlib.util
import os
import re
from pathlib import Path

from envcoder_bench.core.shell import display_path, resume_command

PACKAGE = Path(__file__).resolve().parent.parent


def python_path() -> str:
    """Return the PYTHONPATH of a process that is to import this package from where it is."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([str(PACKAGE.parent), *filter(None, entries)])


def project_folder(name: str) -> Path:
    """Return the path of ``cfg`` or ``user_functions``: beside the package in a checkout, inside it in a wheel."""
    beside = PACKAGE.parent / name
    return beside if beside.is_dir() else PACKAGE / name


def has_package(name: str) -> bool:
    """Return whether a package or a module can be imported; it is not imported, which may take seconds."""
    with contextlib.suppress(ImportError):  # of the package that a module is in
        return importlib.util.find_spec(name) is not None
    return False


def user_file(path: str | os.PathLike[str]) -> Path:
    """Return the path that a user gave; one below ``user_functions/`` that is not there is that of the package."""
    asked = Path(path)
    if asked.parts[:1] != ("user_functions",) or asked.exists():
        return asked
    shipped = project_folder("user_functions").parent / asked
    return shipped if shipped.exists() else asked


def cache_folder() -> Path:
    """Return the folder of cached results: ``ENVCODER_BENCH_CACHE``, or ``~/.cache/envcoder_bench``."""
    root = os.environ.get("ENVCODER_BENCH_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "envcoder_bench"


RUN, SEARCH, GRID, SCORE = "run", "search", "grid", "score"
# a key of the config that only this kind has
_MARKS = {"candidates": RUN, "llm": SEARCH, "arenas": GRID, "held_out": SCORE}
_RESUMED_BY = {
    **{RUN: "eval-shapers", SEARCH: "auto-shape", GRID: "eval-policies"},
    SCORE: "envcoder-bench score-model",
}


def folder_kind(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a folder: RUN, SEARCH, GRID or SCORE; None if it is unknown."""
    try:
        text = (Path(path) / "config.yaml").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    keys = set(re.findall(r"^(\w+):", text, re.MULTILINE))
    kinds = {kind for key, kind in _MARKS.items() if key in keys}
    return kinds.pop() if len(kinds) == 1 else None


def other_kind(path: str | os.PathLike[str], wanted: str) -> str | None:
    """Return an error message if a folder is known to be of another kind than ``wanted``; None otherwise."""
    kind = folder_kind(path)
    if kind is None or kind == wanted:
        return None
    folder = display_path(Path(path))
    runs = f"its runs are {folder}/final and {folder}/rounds/<k>/run, and " if kind == SEARCH and wanted == RUN else ""
    return f"{folder} holds a {kind}, not a {wanted}; {runs}{resume_command(Path(path), _RESUMED_BY[kind])} resumes it"
