"""Tables and pictures of the study in docs/results.md, between ``<!-- study PART -->`` and ``<!-- end -->``."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any, Callable, Sequence

from bench.records import Record, read
from bench.task_tables import UNITS, bounds

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.tasks.base import BASELINE_FILES, HUMAN, UNSHAPED

from . import analysis
from .lengths import SPARSE_REWARD
from .report_components import HEAT_MAP, components, longest_components, plot_components
from .report_evolution import evolve
from .report_ranks import ranks
from .report_words import origins, shown, steps, table

BLOCK = re.compile(r"(<!-- study (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
TITLES = {SPARSE_REWARD: "human, sparse reward"}


def report(files: Sequence[Path], page: Path, images: Path) -> list[Path]:
    """Write the blocks of the page and the pictures; returns what was written. Parts without records stay empty."""
    records = [record for file in files for record in read(file)]
    if not records:
        raise UserError(f"no records in {', '.join(map(str, files))}: measure first")
    text = page.read_text(encoding="utf-8")
    write_atomic(page, BLOCK.sub(lambda m: m[1] + _block(PARTS[m[2]](records)) + m[3], text))
    drawn = [page]
    tasks = longest_components(records)
    if tasks:
        images.mkdir(parents=True, exist_ok=True)
        drawn.append(plot_components(tasks, images / HEAT_MAP))
    return drawn


def _block(lines: list[str]) -> str:
    return "\n" + "\n".join(lines) + "\n\n" if lines else ""


# lengths


def lengths(records: list[Record]) -> list[str]:
    tasks = analysis.longest(analysis.trainings(records, "lengths"))
    rows = []
    for task, points in tasks.items():
        for name in (HUMAN, UNSHAPED, SPARSE_REWARD):
            own = analysis.length(points, name, bounds(task))
            if own is not None:
                size = f"{points[-1]['seeds']} x {points[-1]['envs']:,}"
                best = f"{shown(own.best)} after {steps(own.best_steps)}"
                last = f"{shown(own.last)} after {steps(own.steps)}"
                cells = [task, UNITS.get(task, ""), TITLES.get(name, name), size, best, last, shown(own.gained)]
                rows.append(cells)
    head = ["task", "fitness", "baseline", "seeds x environments", "best evaluation [95 %], env-steps of each",
            "last evaluation [95 %]", "gain in the last quarter [95 %], paired"]  # fmt: skip
    return [*origins(list(tasks.values())), *table(head, rows)] if rows else []


# devices


def devices(records: list[Record]) -> list[str]:
    runs = analysis.trainings(records, "devices")
    rows = []
    sizes = dict.fromkeys((own[-1]["task"], own[-1]["envs"], own[-1]["iterations"], own[-1]["seeds"]) for own in runs)
    for size in sizes:
        same = [
            own[-1]
            for own in runs
            if tuple(own[-1][key] for key in ("task", "envs", "iterations", "seeds")) == size and own[-1]["complete"]
        ]
        for first, second in combinations(same, 2):
            for name in BASELINE_FILES:
                means, seeds = analysis.distance(first["fitness"].get(name, []), second["fitness"].get(name, []))
                if not math.isnan(means):
                    what = [
                        f"{size[0]}, {name}",
                        f"{size[3]} x {size[1]:,} x {size[2]:,}",
                        _place(first),
                        _place(second),
                    ]
                    rows.append([*what, f"{means:+.2f}", f"{seeds:.2f}"])
    head = ["task, baseline", "seeds x environments x iterations", "here", "there", "difference of means",
            "same seed here and there"]  # fmt: skip
    unit = "Differences are in units of the standard deviation over seeds."
    return [*origins(runs), unit, "", *table(head, rows)] if rows else []


def _place(record: Record) -> str:
    return f"{record['on']}, " + (f"among {record['neighbours']}" if record["neighbours"] else "alone")


PARTS: dict[str, Callable[[list[Record]], Any]] = {
    "components": components, "lengths": lengths, "ranks": ranks, "evolve": evolve, "devices": devices,
}  # fmt: skip
