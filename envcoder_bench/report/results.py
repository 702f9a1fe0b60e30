"""What came out of a run, one row per candidate and seed: results.csv."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from envcoder_bench.core.files import write_atomic

OK = "ok"
RUNNING = "running"
FAILED = "failed"
FAILED_AT_LOAD = "failed at load"
SKIPPED = "skipped"  # it defines no function of the types that were asked for
STOPPED = "stopped"  # in a race
STATUSES = (OK, RUNNING, FAILED, FAILED_AT_LOAD, SKIPPED, STOPPED)

NAN = math.nan


@dataclass
class Result:
    """One candidate trained with one seed. Numbers that are not known are NaN (``shaped_return``: None).

    Attributes:
        status: one of STATUSES; ``running`` for a run in progress, with the fitness last measured.
        fitness, fitness_ci_low, fitness_ci_high: mean over this row's evaluation episodes and its 95 % interval.
        episodes, episode_length: evaluation episodes; their mean length in control steps.
        shaped_return: mean undiscounted return of the candidate's own reward over the last training episodes.
        env_steps: control steps that this candidate and seed trained on.
        error: one line, ``FILE:LINE: in FUNCTION: MESSAGE``; empty when ok.
        unstable_resets: environments that were reset because their physics blew up.
        training_episodes: training episodes that ended, those by a blow-up included.
        contact_overflows: control steps times environments, in training and evaluation, in which the simulator had no
            room for all contacts and dropped some: where it is not 0, the row is not to be trusted.
        stopped_at, reason: of a candidate that a race stopped: the iteration (else 0), and its rank there and why.
    """

    candidate: str
    seed: int
    status: str = OK
    fitness: float = NAN
    fitness_ci_low: float = NAN
    fitness_ci_high: float = NAN
    episodes: int = 0
    episode_length: float = NAN
    shaped_return: float | None = None
    env_steps: int = 0
    error: str = ""
    unstable_resets: int = 0
    training_episodes: int = 0
    contact_overflows: int = 0
    stopped_at: int = 0
    reason: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"{self.candidate}: status {self.status!r}; it must be one of {', '.join(STATUSES)}")
        self.error = " ".join(self.error.split())

    @property
    def failed(self) -> bool:
        return self.status in (FAILED, FAILED_AT_LOAD)

    @property
    def measured(self) -> bool:
        """Whether this row counts in its candidate's mean."""
        return self.status in (OK, RUNNING, STOPPED) and math.isfinite(self.fitness)


def number(value: float | None) -> str:
    """Print a number for a CSV file: nine digits (every float32 survives), nothing where there is none."""
    return "" if value is None or math.isnan(value) else format(value, ".9g")


COLUMNS = (
    "candidate", "seed", "status", "fitness", "fitness_ci_low", "fitness_ci_high", "episodes", "episode_length",
    "shaped_return", "env_steps", "error", "unstable_resets", "training_episodes", "contact_overflows",
    "stopped_at", "reason",
)  # fmt: skip
# files of older versions lack the last two columns, or the last four, which are then read as 0 or empty
_OLDER = (COLUMNS[:-2], COLUMNS[:-4])


def write_results(path: str | Path, results: Sequence[Result]) -> None:
    """Write results.csv atomically, in the order given; the same values give the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in results:
        values = (getattr(result, column) for column in COLUMNS)
        writer.writerow([number(x) if x is None or isinstance(x, float) else x for x in values])
    write_atomic(path, text.getvalue())


def read_results(path: str | Path) -> list[Result]:
    """Read what ``write_results`` wrote, in this version or an older one.

    Raises:
        ValueError: the columns are others, or a row is not whole; the message names the file.
    """
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    if not text.endswith("\n"):
        raise ValueError(f"{path}: its end is missing")
    header, *rows = csv.reader(io.StringIO(text))
    if tuple(header) not in (COLUMNS, *_OLDER):
        raise ValueError(f"{path}: not a results.csv; its columns must be {', '.join(COLUMNS)}")
    return [_result(header, row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]


def _result(header: Sequence[str], row: Sequence[str], place: str) -> Result:
    if len(row) != len(header):
        raise ValueError(f"{place} has {len(row)} cells and not {len(header)}")
    cells: dict[str, str] = dict(zip(header, row))
    values: dict[str, Any] = {**cells}
    try:
        for column in ("seed", "episodes", "env_steps", "unstable_resets"):
            values[column] = int(cells[column])
        for column in ("training_episodes", "contact_overflows", "stopped_at"):
            values[column] = int(cells.get(column, 0))
        for column in ("fitness", "fitness_ci_low", "fitness_ci_high", "episode_length"):
            values[column] = float(cells[column]) if cells[column] else NAN
        values["shaped_return"] = float(cells["shaped_return"]) if cells["shaped_return"] else None
        return Result(**values)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
