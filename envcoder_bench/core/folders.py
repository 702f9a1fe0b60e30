"""Locations of the folders beside the package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def project_folder(name: str) -> Path:
    """Return the path of ``cfg`` or ``user_functions``: beside the package in a checkout, inside it in a wheel."""
    beside = _PACKAGE.parent / name
    return beside if beside.is_dir() else _PACKAGE / name
