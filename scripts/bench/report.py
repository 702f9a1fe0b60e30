"""Write the tables and plots of docs/ from records."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Sequence

from .outside_plot import plot_outside
from .plots import file_name, pictures, plot_devices, plot_learning, plot_memory, plot_scaling
from .records import Record, read
from .tables import select, table
from .task_tables import is_outside, lengths_as_learning
from .terrain_report import climbs, plot_terrain
from .terrain_report import file_name as terrain_name

STUDY = "study.jsonl"
CORES = re.compile(r", \d+ CPU cores")  # on a GPU, learning does not depend on them
BLOCK = re.compile(r"(<!-- (\w+) (cuda|cpu) -->\n).*?(<!-- end -->)", re.DOTALL)


def report(records: Path, pages: Sequence[Path], images: Path) -> list[Path]:
    """Write every ``<!-- KIND DEVICE --> ... <!-- end -->`` block of the pages, and the plots.

    Returns what was written. A block without records stays empty. ``study.jsonl`` beside the records has the longest
    trainings of both baselines.
    """
    measured, study = read(records), lengths_as_learning(read(records.with_name(STUDY)))
    if not measured:
        raise SystemExit(f"{records} holds no records: measure first, with --out {records}")
    images.mkdir(parents=True, exist_ok=True)
    drawn = [*plot_learning([r for r in measured if not is_outside(r)], images), *plot_outside(measured, images)]
    drawn += plot_terrain(measured, images)

    def of(kind: str) -> list[Record]:
        return [*measured, *study] if kind == "gap" else measured

    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(BLOCK.sub(lambda m: m[1] + _block(of(m[2]), m[2], m[3]) + m[4], text), encoding="utf-8")
    plots = {"devices": plot_devices, "scaling": plot_scaling, "memory": plot_memory}
    drawn += filter(None, (plot(measured, images / f"{name}.png") for name, plot in plots.items()))
    return [*pages, *drawn]


def _block(measured: list[Record], kind: str, device: str) -> str:
    """Return a table for each machine and day with its commands; for ``curves`` and ``climbs``, the plots.

    ``gap`` is a part of ``learning`` for the README, without the commands.
    """
    if kind == "curves":
        measured = [r for r in measured if not is_outside(r)]
        tasks = [task for task, own in pictures(measured).items() if own[0][0]["device"] == device]
        return "".join(f"\n![how the baselines of {task} learn](images/{file_name(task)})\n" for task in tasks)
    if kind == "climbs":
        own = [task for task, points in climbs(measured).items() if points[0]["device"] == device]
        return "".join(
            f"\n![levels of {task} in training, and crossings](images/{terrain_name(task)})\n" for task in own
        )
    if kind != "outside":
        measured = [r for r in measured if not is_outside(r)]
    rows = [row for row in select(kind, measured) if row["device"] == device]

    def origin(row: Record) -> tuple[str, str]:
        machine = CORES.sub("", row["machine"]) if (kind, device) == ("gap", "cuda") else row["machine"]
        return machine, row["date"].split()[0]

    parts: list[str] = []
    for (machine, day), same in groupby(sorted(rows, key=origin), origin):
        group = list(same)
        commands = [*dict.fromkeys(f"    {row['command']}" for row in group), ""] if kind != "gap" else []
        parts.append("\n".join([f"{machine}, {day}:", "", *commands, *table(kind, group)]))
    return "".join(f"\n{part}\n" for part in parts) + ("\n" if parts else "")
