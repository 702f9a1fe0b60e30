"""Fitness and its difference to the baseline as text, for the report of a search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from envcoder_bench.report.ranking import decimal_places

if TYPE_CHECKING:
    from envcoder_bench.search.records import Archive, Attempt


def above_reference(archive: Archive, attempt: Attempt, digits: int) -> str:
    """Return the mean difference to the baseline with the same seeds, with its sign; empty if there is none."""
    reference = archive.baselines.get(archive.reference)
    if reference is None or attempt.name == reference.name:
        return ""
    found = [x - reference.by_seed[seed] for seed, x in attempt.by_seed.items() if seed in reference.by_seed]
    return f"{math.fsum(found) / len(found):+.{digits}f}" if found else ""


def scored(archive: Archive, attempt: Attempt, digits: int) -> str:
    """Return fitness and the difference to the baseline: ``0.247, +0.000``."""
    return ", ".join(
        x for x in (fixed_or_none(attempt.fitness, digits), above_reference(archive, attempt, digits)) if x
    )


def digits_of(archive: Archive) -> int:
    """Return the decimal places of all fitness values of a report."""
    return decimal_places([a.fitness for a in [*archive.references, *archive.attempts] if a.fitness is not None])


def fixed_or_none(value: float | None, digits: int) -> str:
    return "none" if value is None else f"{value:.{digits}f}"
