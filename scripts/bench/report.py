"""From records to docs/benchmarks.md and its pictures."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import List

from .plots import plot_memory, plot_scaling
from .records import Record, read
from .tables import select, table

BLOCK = re.compile(r"(<!-- (\w+) (cuda|cpu) -->\n).*?(<!-- end -->)", re.DOTALL)


def report(records: Path, page: Path, images: Path) -> List[Path]:
    """Write every ``<!-- KIND DEVICE --> ... <!-- end -->`` block of the page anew, and the pictures.

    Returns what was written. A block without records stays empty.
    """
    measured = read(records)
    if not measured:
        raise SystemExit(f"{records} holds no records: measure first, with --out {records}")
    text = page.read_text(encoding="utf-8")
    filled = BLOCK.sub(lambda m: m[1] + _block(measured, m[2], m[3]) + m[4], text)
    page.write_text(filled, encoding="utf-8")
    images.mkdir(parents=True, exist_ok=True)
    written = [page]
    if any(record["kind"] == "scaling" for record in measured):
        plot_scaling(measured, images / "scaling.png")
        written.append(images / "scaling.png")
    if plot_memory(measured, images / "memory.png"):
        written.append(images / "memory.png")
    return written


def _block(measured: List[Record], kind: str, device: str) -> str:
    """A table for each machine and day, under the commands that measured it."""
    rows = [row for row in select(kind, measured) if row["device"] == device]

    def origin(row: Record) -> tuple[str, str]:
        return row["machine"], row["date"].split()[0]

    parts: List[str] = []
    for (machine, day), same in groupby(sorted(rows, key=origin), origin):
        group = list(same)
        commands = dict.fromkeys(f"    {row['command']}" for row in group)
        parts.append("\n".join([f"{machine}, {day}:", "", *commands, "", *table(kind, group)]))
    return "".join(f"\n{part}\n" for part in parts) + ("\n" if parts else "")
