"""Locations of the folders beside the package."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def project_folder(name: str) -> Path:
    """Return the path of ``cfg`` or ``user_functions``: beside the package in a checkout, inside it in a wheel."""
    beside = PACKAGE.parent / name
    return beside if beside.is_dir() else PACKAGE / name


def cache_folder() -> Path:
    """Where results of earlier processes are kept: ``ENVCODER_BENCH_CACHE``, or ``~/.cache/envcoder_bench``."""
    root = os.environ.get("ENVCODER_BENCH_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "envcoder_bench"
