"""Words, numbers and tables that the parts of the report share."""

from __future__ import annotations

import math
from typing import Sequence

from bench.records import Record

from envcoder_bench.report.statistics import Interval


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(row)} |" for row in (header, *rows)]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def shown(interval: Interval, decimals: int = 2) -> str:
    """Return ``mean [low, high]``."""
    middle, low, high = interval
    if math.isnan(middle):
        return ""
    return f"{middle:.{decimals}f}" + ("" if math.isnan(low) else f" [{low:.{decimals}f}, {high:.{decimals}f}]")


def steps(count: float) -> str:
    """Return env-steps as ``30.1 M`` or ``51.2 k``."""
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count / 1e3:.1f} k"


def origins(runs: Sequence[list[Record]]) -> list[str]:
    """Return machine, date and commands of trainings, and what is not complete."""
    lines: list[str] = []
    for machine in dict.fromkeys(own[-1].get("machine", "unknown machine") for own in runs):
        same = [own[-1] for own in runs if own[-1].get("machine", "unknown machine") == machine]
        days = sorted({r["date"].split()[0] for r in same if "date" in r})
        lines += [f"{machine}{', ' if days else ''}{' and '.join(days)}:", ""]
        commands = list(dict.fromkeys(f"    {r['command']}" for r in same if "command" in r))
        lines += [*commands, ""] if commands else []
    cut = [own[-1] for own in runs if not own[-1]["complete"]]
    if cut:
        which = ", ".join(f"{r['task']} at iteration {r['iteration']:,} of {r['iterations']:,}" for r in cut)
        lines += [f"Stopped before the end: {which}.", ""]
    return lines
