"""The results of a run: results.csv, one row per candidate and seed."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.results.csv_log import table_text

OK = "ok"
RUNNING = "running"
FAILED = "failed"
FAILED_AT_LOAD = "failed at load"
SKIPPED = "skipped"  # it defines none of the requested functions
STOPPED = "stopped"  # in a race
STATUSES = (OK, RUNNING, FAILED, FAILED_AT_LOAD, SKIPPED, STOPPED)

NAN = math.nan


@dataclass
class Result:
    """The result of one candidate and seed. Unknown numbers are NaN, or None for ``shaped_return``.

    Attributes:
        candidate, seed: the group.
        status: one of STATUSES; ``running`` during the run, with the last measured fitness.
        fitness, fitness_ci_low, fitness_ci_high: mean over the evaluation episodes and its 95 % interval.
        episodes, episode_length: number of evaluation episodes, and their mean length in control steps.
        shaped_return: mean undiscounted return of the candidate's own reward over the last training episodes.
        env_steps: control steps of training of this candidate and seed.
        error: one line, ``FILE:LINE: in FUNCTION: MESSAGE``; empty if there is none.
        unstable_resets: number of resets of environments because their physics blew up.
        training_episodes: number of finished training episodes, including those that ended in a blow-up.
        contact_overflows: env-steps, in training and evaluation, in which the simulator dropped contacts for lack of
            room; if it is not 0, the row is not reliable.
        stopped_at, reason: if a race stopped the candidate, the iteration (else 0), and its rank there with the reason.
        half_step_fitness: fitness of the final policy with half the physics step; NaN without evaluation.half_step.
        hacked: why the candidate's policies are taken to exploit its reward, see ``results.hacks``; empty if not.
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
    half_step_fitness: float = NAN
    hacked: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"{self.candidate}: status {self.status!r}; it must be one of {', '.join(STATUSES)}")
        # they may quote a candidate
        self.error, self.reason, self.hacked = map(one_line, (self.error, self.reason, self.hacked))

    @property
    def key(self) -> tuple[str, int]:
        """Candidate and seed."""
        return self.candidate, self.seed

    @property
    def failed(self) -> bool:
        return self.status in (FAILED, FAILED_AT_LOAD)

    @property
    def measured(self) -> bool:
        """Whether this row counts in the candidate's mean."""
        return self.status in (OK, RUNNING, STOPPED) and math.isfinite(self.fitness)


COLUMNS = tuple(field.name for field in fields(Result))
_READ: dict[Any, Callable[[str], Any]] = {  # cells by the types of fields
    str: one_line,
    int: int,
    float: lambda cell: float(cell) if cell else NAN,
    float | None: lambda cell: float(cell) if cell else None,
}


def write_results(path: str | Path, results: Sequence[Result]) -> None:
    """Write results.csv atomically, in the order given."""
    write_atomic(path, table_text(COLUMNS, ([getattr(result, column) for column in COLUMNS] for result in results)))


def read_results(path: str | Path) -> list[Result]:
    """Read results.csv.

    Raises ValueError if the columns are others or a row is incomplete; the message names the file.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from error
    if not text.endswith("\n"):
        raise ValueError(f"{path}: its end is missing")
    header, *rows = csv.reader(io.StringIO(text))
    if tuple(header) not in (COLUMNS, COLUMNS[:-2]):  # runs of earlier versions lack the last two
        raise ValueError(f"{path}: not a results.csv; its columns must be {', '.join(COLUMNS)}")
    more = [""] * (len(COLUMNS) - len(header))
    return [_result([*row, *more], f"{path}: row {number}") for number, row in enumerate(rows, 1)]


def _result(row: Sequence[str], where: str) -> Result:
    if len(row) != len(COLUMNS):
        raise ValueError(f"{where} has {len(row)} cells and not {len(COLUMNS)}")
    try:
        return Result(*(_READ[field.type](cell) for field, cell in zip(fields(Result), row)))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
