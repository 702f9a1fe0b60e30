"""The differences between two candidates: of the functions that a file defines, and of what they use.

A file is split at the beginnings of its top-level lines, neither parsed nor executed, because it may be untrusted.
"""

import difflib
import re
from collections.abc import Collection

from markupsafe import Markup

from envcoder_bench.report.page import shell
from envcoder_bench.shaping.kinds import ALIASES
from envcoder_bench.shaping.text import definitions

MOST_LINES = 1000  # of sources that are compared: the time grows with their square
_CONTINUES = re.compile(r"[\s)\]}]|$")
_DEFINED = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)|(\w+)\s*(?::[^=]*)?=(?!=)")
_IMPORTED = re.compile(r"(?:from\s.*?\s)?import\b(.*)", re.DOTALL)


def changes(before: str, after: str) -> Markup | None:
    """Return the differences to the functions that ``after`` defines; None if ``before`` has none of them."""
    kinds = _kinds(before) & _kinds(after)
    if not kinds:
        return None
    if max(text.count("\n") for text in (before, after)) >= MOST_LINES:
        return shell.parts().notes([f"They are not compared: one has {MOST_LINES:,} lines or more."])
    lines = list(difflib.unified_diff(_used(before, _kinds(after)), _used(after, _kinds(after)), lineterm=""))
    return shell.difference(lines) if lines else shell.parts().notes(["There are none."])


def _kinds(source: str) -> set[str]:
    return {ALIASES.get(name, name) for name in definitions(source).names}


def _used(source: str, kinds: Collection[str]) -> list[str]:
    """Return the lines of a file's functions of some kinds, and of what they use, but for imports."""
    parts, imports = _parts(source)
    wanted = {name for name in definitions(source).names if ALIASES.get(name, name) in kinds}
    kept = {k for k, (names, _) in enumerate(parts) if names & wanted}
    new = kept
    while new:
        words = {word for k in new for line in parts[k][1] for word in re.findall(r"\w+", line)}
        new = {k for k, (names, _) in enumerate(parts) if names & words and k not in imports} - kept
        kept = kept | new
    return [line for k in sorted(kept) for line in [*parts[k][1], ""]]


def _parts(source: str) -> tuple[list[tuple[set[str], list[str]]], set[int]]:
    """Return names and lines of each top-level statement, with comments and decorators above it; which are imports."""
    parts: list[tuple[set[str], list[str]]] = []
    above: list[str] = []
    for line in source.splitlines():
        if line[:1] in ("#", "@"):
            above.append(line)
        elif parts and not above and _CONTINUES.match(line):
            parts[-1][1].append(line)
        elif line.strip():
            parts.append((set(), [*above, line]))
            above = []
    imports: set[int] = set()
    for k, (names, lines) in enumerate(parts):
        while not lines[-1].strip():
            lines.pop()
        text = "\n".join(line for line in lines if line[:1] not in ("#", "@"))
        if found := _DEFINED.match(text):
            names.add(found[1] or found[2])
        elif found := _IMPORTED.match(text):
            names.update(re.findall(r"\w+", found[1]))
            imports.add(k)
    return parts, imports
