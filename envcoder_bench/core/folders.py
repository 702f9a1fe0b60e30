"""Where the files beside the package are."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent


def project_folder(name: str) -> Path:
    """``cfg`` or ``user_functions``: beside the package in a checkout, inside it where a wheel was installed."""
    beside = _PACKAGE.parent / name
    return beside if beside.is_dir() else _PACKAGE / name
