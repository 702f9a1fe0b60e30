"""Write the tables and plots of docs/ from records."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby
from pathlib import Path
from typing import Sequence

from .outside_plot import plot_outside
from .plots import file_name, pictures, plot_devices, plot_learning, plot_memory, plot_scaling
from .quotes import QUOTES
from .records import Record, read
from .tables import select, table
from .task_tables import is_outside, lengths_as_learning
from .terrain_report import climbs, plot_terrain
from .terrain_report import file_name as terrain_name

STUDY = "study.jsonl"
BLOCK = re.compile(r"(<!-- (\w+) (cuda|cpu|any) -->\n).*?(<!-- end -->)", re.DOTALL)
QUOTE = re.compile(r"(<!-- quote (\w+) -->).*?(<!-- end -->)", re.DOTALL)


def report(records: Path, pages: Sequence[Path], images: Path) -> list[Path]:
    """Write the blocks and quotes of the pages, see ``render``, and the plots; return what was written.

    ``study.jsonl`` beside the records has those of the study.
    """
    measured, study = read(records), read(records.with_name(STUDY))
    if not measured:
        raise SystemExit(f"{records} holds no records: measure first, with --out {records}")
    images.mkdir(parents=True, exist_ok=True)
    drawn = [*plot_learning([r for r in measured if not is_outside(r)], images), *plot_outside(measured, images)]
    drawn += plot_terrain(measured, images)
    for page in pages:
        page.write_text(render(page.read_text(encoding="utf-8"), measured, study), encoding="utf-8")
    plots = {"devices": plot_devices, "scaling": plot_scaling, "memory": plot_memory}
    drawn += filter(None, (plot(measured, images / f"{name}.png") for name, plot in plots.items()))
    return [*pages, *drawn]


def render(page: str, measured: list[Record], study: list[Record]) -> str:
    """Return a page with its blocks ``<!-- KIND DEVICE --> ... <!-- end -->`` and quotes from the records.

    A block without records stays empty.
    """
    trained = [*measured, *lengths_as_learning(study)]

    def block(match: re.Match[str]) -> str:
        opening, kind, device, end = match.groups()
        return opening + _block(trained if kind == "gap" else measured, kind, device) + end

    def quote(match: re.Match[str]) -> str:
        return match[1] + fill(QUOTES[match[2]](measured, study)) + match[3]

    return QUOTE.sub(quote, BLOCK.sub(block, page))


def fill(text: str) -> str:
    """Return a sentence in lines of its own, so that a changed number changes no other line."""
    return "\n" + textwrap.fill(text, 120, break_on_hyphens=False) + "\n"


def _block(measured: list[Record], kind: str, device: str) -> str:
    """Return a table for each machine and day with its commands; for ``curves`` and ``climbs``, the plots.

    For the device ``any`` it is one table without the commands, whose rows name their machine and day.
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
    if device == "any":
        rows = select(kind, measured)
        return "\n" + "\n".join(table(kind, rows)) + "\n\n" if rows else ""
    rows = [row for row in select(kind, measured) if row["device"] == device]

    def origin(row: Record) -> tuple[str, str]:
        return row["machine"], row["date"].split()[0]

    parts: list[str] = []
    for (machine, day), same in groupby(sorted(rows, key=origin), origin):
        group = list(same)
        commands = [*dict.fromkeys(f"    {row['command']}" for row in group), ""]
        parts.append("\n".join([f"{machine}, {day}:", "", *commands, *table(kind, group)]))
    return "".join(f"\n{part}\n" for part in parts) + ("\n" if parts else "")
