"""Differences between the sources of candidates."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from envcoder_bench.shaping.definitions import defined_types
from envcoder_bench.shaping.kinds import SHAPER_TYPES

if TYPE_CHECKING:
    from envcoder_bench.search.records import Attempt


def without_untouched(parent: Attempt, child: Attempt) -> str:
    """Return a parent's source without the functions that its child does not define."""
    return _without(parent.source, set(SHAPER_TYPES) - set(defined_types(child.source)))


def diff(parent: Attempt, child: Attempt) -> list[str]:
    """Return the unified diff of two sources, without the parent's functions that the child does not define."""
    before = without_untouched(parent, child).splitlines()
    lines = difflib.unified_diff(before, child.source.splitlines(), parent.name, child.name, lineterm="")
    return list(lines)


def _functions(source: str) -> dict[str, tuple[int, int]]:
    """Return first and last line of each top-level function; untrusted source is scanned, not parsed."""
    found: dict[str, tuple[int, int]] = {}
    name, first, last = "", 0, 0
    for number, line in enumerate(source.split("\n"), 1):
        if line[:1] in ("", " ", "\t", "#", ")", "]", "}"):  # the function continues
            last = number if line.strip() else last
            continue
        if name:
            found[name] = (first, last)
        head = line.split("(")[0].split()
        name = head[1] if len(head) == 2 and head[0] == "def" else ""
        first = last = number
    return {**found, name: (first, last)} if name else found


def _without(source: str, names: set[str]) -> str:
    lines = source.split("\n")
    for name, (first, last) in sorted(_functions(source).items(), key=lambda item: -item[1][0]):
        if name in names:
            while last < len(lines) and not lines[last].strip():
                last += 1
            del lines[first - 1 : last]
    return "\n".join(lines).rstrip("\n")
