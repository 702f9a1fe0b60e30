"""Parents and variants of a search's attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envcoder_bench.report.table import shorten
from envcoder_bench.search.report_scores import digits_of, scored

if TYPE_CHECKING:
    from envcoder_bench.search.records import Archive, Attempt


def ancestry(archive: Archive, attempt: Attempt) -> list[Attempt]:
    """Return the chain of first parents up to an attempt, the oldest first."""
    line = [attempt]
    while True:
        parent = next((a for a in (_find(archive, name) for name in line[-1].parents[:1]) if a is not None), None)
        if parent is None or any(parent is a for a in line):
            return line[::-1]
        line.append(parent)


def family(archive: Archive) -> str:
    """Return all attempts as a tree of indented lines, each below its first parent, with its fitness."""
    every = [*archive.baselines.values(), *archive.attempts]
    names = {a.name for a in every}
    children: dict[str, list[Attempt]] = {}
    roots = []
    for attempt in every:
        first = attempt.parents[0] if attempt.parents else None
        if first in names and ancestry(archive, attempt)[0] is not attempt:
            children.setdefault(str(first), []).append(attempt)
        else:
            roots.append(attempt)
    digits, best, lines = digits_of(archive), archive.best(), []
    todo = [(root, "", "") for root in reversed(roots)]
    while todo:
        attempt, first, then = todo.pop()
        known = attempt.fitness is not None
        fitness = scored(archive, attempt, digits) if known else attempt.outcome
        if attempt.stopped_at:
            fitness = f"{fitness}, {attempt.outcome}"
        if attempt.name in archive.baselines and attempt.fitness is None:
            fitness = "not measured"
        others = f"  with {', '.join(attempt.parents[1:])}" if len(attempt.parents) > 1 else ""
        mark = "  ← the best" if attempt is best else ""
        lines.append(f"{first}{shorten(attempt.name, 40)}  {fitness}{others}{mark}")
        below = children.get(attempt.name, [])
        for k, child in reversed(list(enumerate(below))):
            last = k == len(below) - 1
            todo.append((child, then + ("└─ " if last else "├─ "), then + ("   " if last else "│  ")))
    return "\n".join(lines)


def _find(archive: Archive, name: str) -> Attempt | None:
    try:
        return archive.find(name)
    except KeyError:
        return None


def first_parent(archive: Archive, attempt: Attempt) -> Attempt | None:
    """Return the first of an attempt's parents that is in the archive."""
    known = {own.name: own for own in [*archive.attempts, *archive.baselines.values()]}
    return next((known[name] for name in attempt.parents if name in known), None)
