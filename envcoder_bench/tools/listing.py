"""A list of run folders: task, date, best candidate and status of each, read without loading a task."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envcoder_bench.core.errors import UserError, message_line
from envcoder_bench.core.files import read_json
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.shell import display_path
from envcoder_bench.core.words import aligned, format_fitness
from envcoder_bench.core.yaml_files import parse_plain
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import read_results
from envcoder_bench.run.folder.provenance import read_provenance
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.sources.registry import title_of

COMPLETE, IN_PROGRESS, STOPPED, DAMAGED = "complete", "in progress", "stopped", "damaged"
DEPTH = 4  # levels of folders that are searched; a search's runs are in rounds/<k>/run


@dataclass(frozen=True)
class ListedRun:
    """A run folder in a list.

    Attributes:
        task: the name of the task; empty if it cannot be read.
        date: when the run began, ``2026-01-31 12:00:00``.
        best, fitness: the best candidate that is not a baseline (without candidates, the best baseline); empty and
            None before the first evaluation.
        status: ``complete``, ``in progress``, ``stopped``, or ``damaged`` with a reason.
    """

    path: Path
    task: str
    date: str
    best: str
    fitness: float | None
    status: str


def find_runs(folders: Sequence[Path]) -> list[ListedRun]:
    """Find the run folders at or below ``folders``, oldest first. Raises ValueError if a folder does not exist."""
    runs: dict[Path, ListedRun] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder}: {'it is a file' if folder.exists() else 'the folder does not exist'}")
        for path in _run_folders(folder, DEPTH):
            runs.setdefault(path.resolve(), read_run(path))
    return sorted(runs.values(), key=lambda run: (run.date, str(run.path)))


def _run_folders(folder: Path, depth: int) -> list[Path]:
    run = RunFolder(folder)
    if run.run.is_file() or (run.config.is_file() and run.candidate("").is_dir()):
        return [folder]
    try:
        below = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir()) if depth else []
    except OSError:  # the folder cannot be read
        below = []
    return [run for path in below for run in _run_folders(Path(path), depth - 1)]


def read_run(path: Path) -> ListedRun:
    """Read the row of a run folder; damaged files give a status."""
    folder = RunFolder(path)
    task, date, best, fitness, damage = "", "", "", None, ""
    try:
        record = read_provenance(folder.run)
        date = "" if record.begun is None else record.begun[:19].replace("T", " ")
        config = parse_plain(record.config)
        name = config["task"]["name"]
        task = str(title_of(str(config.get("task_source") or name), name))
        best, fitness = _best(folder)
    except UserError as error:
        damage = str(error)
    except (OSError, ValueError, KeyError, TypeError) as error:
        damage = f"{DAMAGED} ({message_line(error).replace(f'{path}{os.sep}', '')})"
    date = date or time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(path.stat().st_mtime))
    status = damage or (COMPLETE if folder.complete else IN_PROGRESS if folder.in_progress() else STOPPED)
    return ListedRun(path, task, date, best, fitness, status)


def _best(folder: RunFolder) -> tuple[str, float | None]:
    """Return the best candidate, or the best baseline without candidates, and its fitness; nothing before there is one.

    The ranking of a complete run is that in summary.json, which the run printed: it also orders equal candidates.
    """
    if folder.complete:
        rows = read_json(folder.summary).get("ranking")
        if not isinstance(rows, list):
            raise ValueError(f"{folder.summary}: not the summary of a run")
        measured = [row for row in rows if row["rank"] is not None]
        ranked = [(one_line(row["candidate"]), row["baseline"], float(row["fitness"])) for row in measured]
    else:
        results = rank(read_results(folder.results)) if folder.results.is_file() else []
        ranked = [(row.candidate, row.baseline, row.fitness) for row in results if row.rank is not None]
    best = next((row for row in ranked if not row[1]), ranked[0] if ranked else ("", False, None))
    return best[0], best[2]


def render_runs(runs: Sequence[ListedRun]) -> str:
    """Return the list as a table, or a sentence without runs."""
    if not runs:
        return "no runs found"
    header = ("run", "task", "date", "best", "fitness", "status")
    rows = [
        (
            display_path(run.path),
            run.task,
            run.date[:16],
            run.best,
            "" if run.fitness is None else format_fitness(run.fitness),
            run.status,
        )
        for run in runs
    ]
    return "\n".join(aligned([header, *rows], right=(4,)))
