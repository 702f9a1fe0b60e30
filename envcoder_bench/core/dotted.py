"""Nested mappings by dotted keys, as settings are named."""

from collections.abc import Mapping
from typing import Any


def dotted(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings by dotted keys; empty mappings and lists are leaves."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            found.update(dotted(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found
