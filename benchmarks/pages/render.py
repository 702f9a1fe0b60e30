"""Write the tables, quotes and pictures of the pages from the records.

A page has blocks ``<!-- KIND DEVICE --> ... <!-- end -->`` (tables of benchmarks.jsonl), ``<!-- study PART --> ...``
(tables of study.jsonl) and ``<!-- quote NAME --> ...`` (sentences); what is between the marks is written here.
"""

import re
import textwrap
from itertools import groupby
from pathlib import Path

from bench.records import Record, read
from bench.tables import table

from envcoder_bench.core.errors import UserError

from .learning_tables import MEASURED, is_outside, sides
from .plots import file_name, pictures, plot_learning, plot_scaling, plot_sides
from .quotes import QUOTES
from .study_tables import HEAT_MAP, STUDIES, longest_components, plot_components
from .tables import COLUMNS, select

FILES = ("benchmarks.jsonl", "study.jsonl")
BLOCK = re.compile(r"(<!-- (\w+) (cuda|cpu|any) -->\n).*?(<!-- end -->)", re.DOTALL)
STUDY = re.compile(r"(<!-- study (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
QUOTE = re.compile(r"(<!-- quote (\w+) -->).*?(<!-- end -->)", re.DOTALL)


def report(folder: Path, readme: Path) -> list[Path]:
    """Write the pages of ``benchmarks/``, their pictures and the README; return what was written."""
    measured, study = (read(folder / name) for name in FILES)
    if not measured:
        raise UserError(f"{folder / FILES[0]} holds no records: measure first, with --out {folder / FILES[0]}")
    pages = [readme, *sorted(folder.glob("*.md"))]
    for page in pages:
        page.write_text(render(page.read_text(encoding="utf-8"), measured, study), encoding="utf-8")
    return [*pages, *draw(measured, study, folder / "images")]


def draw(measured: list[Record], study: list[Record], images: Path) -> list[Path]:
    """Draw all pictures that there are records for."""
    images.mkdir(parents=True, exist_ok=True)
    drawn = plot_learning([r for r in measured if not is_outside(r)], images)
    drawn += plot_sides([row for row in sides(measured) if row["device"] == "cuda"], images)
    drawn += filter(None, [plot_scaling(measured, images / "scaling.png")])
    tasks = longest_components(study)
    return [*drawn, plot_components(tasks, images / HEAT_MAP)] if tasks else drawn


def render(page: str, measured: list[Record], study: list[Record]) -> str:
    """Return a page with its blocks and quotes from the records. A block without records stays empty."""

    def block(match: re.Match[str]) -> str:
        opening, kind, device, end = match.groups()
        return opening + _block(measured, kind, device) + end

    def of_study(match: re.Match[str]) -> str:
        lines = STUDIES[match[2]](study)
        return match[1] + ("\n" + "\n".join(lines) + "\n\n" if lines else "") + match[3]

    def quote(match: re.Match[str]) -> str:
        return match[1] + fill(QUOTES[match[2]](measured, study)) + match[3]

    return QUOTE.sub(quote, STUDY.sub(of_study, BLOCK.sub(block, page)))


def fill(text: str) -> str:
    """Return a sentence in lines of its own, so that a changed number changes no other line."""
    return "\n" + textwrap.fill(text, 120, break_on_hyphens=False) + "\n"


def _block(measured: list[Record], kind: str, device: str) -> str:
    """Return a table for each machine and day with its commands; for ``curves``, the pictures.

    For the device ``any`` it is one table without the commands, whose rows name their card and day. The ids of the
    records are in a comment.
    """
    if kind == "curves":
        curves_by_task = pictures([r for r in measured if not is_outside(r)])
        tasks = [task for task, curves in curves_by_task.items() if curves[0][0]["device"] == device]
        return "".join(f"\n![how the baselines of {task} learn](images/{file_name(task)})\n" for task in tasks)
    rows = [row for row in select(kind, measured) if device in ("any", row["device"])]
    if not rows:
        return ""
    ids = f"<!-- records: {' '.join(row['id'] for row in rows)} -->\n" if all("id" in row for row in rows) else ""
    if device == "any":
        columns = COLUMNS[kind] + [MEASURED] * (COLUMNS[kind][-1][0] != MEASURED[0])
        return "\n" + ids + "\n" * bool(ids) + "\n".join(table(columns, rows)) + "\n\n"

    def origin(row: Record) -> tuple[str, str]:
        return row["machine"], row["date"].split()[0]

    parts: list[str] = [ids.rstrip("\n")] if ids else []
    for (machine, day), same in groupby(sorted(rows, key=origin), origin):
        group = list(same)
        commands = [*dict.fromkeys(f"    {row['command']}" for row in group), ""]
        parts.append("\n".join([f"{machine}, {day}:", "", *commands, *table(COLUMNS[kind], group)]))
    return "".join(f"\n{part}\n" for part in parts) + "\n"
