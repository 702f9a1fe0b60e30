"""The results of a run: results.csv, one row per candidate and seed."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from envcoder_bench.core.bounded import parse_json
from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.results.csv_log import table_text
from envcoder_bench.results.metrics import METRICS, Metrics
from envcoder_bench.shaping.contract import Fault, read_fault

OK = "ok"
RUNNING = "running"
FAILED = "failed"
FAILED_AT_LOAD = "failed at load"
SKIPPED = "skipped"  # it defines none of the requested functions
STOPPED = "stopped"  # a race stopped it
STATUSES = (OK, RUNNING, FAILED, FAILED_AT_LOAD, SKIPPED, STOPPED)

NAN = math.nan


@dataclass(frozen=True)
class Result(Metrics):
    """The result of one candidate and seed: its fitness, and the fields of Metrics. Unknown numbers are NaN.

    Attributes:
        candidate, seed: the group.
        status: one of STATUSES; ``running`` during the run, with the last measured fitness.
        fitness, fitness_ci_low, fitness_ci_high: mean over the evaluation episodes and its 95 % interval.
        fault: why it failed or was skipped; None if it did not.
    """

    candidate: str
    seed: int
    status: str = OK
    fitness: float = NAN
    fitness_ci_low: float = NAN
    fitness_ci_high: float = NAN
    fault: Fault | None = None

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"{self.candidate}: status {self.status!r}; it must be one of {', '.join(STATUSES)}")
        for name in METRICS:
            text = getattr(self, name)
            if isinstance(text, str):  # it may quote a candidate
                object.__setattr__(self, name, one_line(text))

    @property
    def key(self) -> tuple[str, int]:
        """Candidate and seed."""
        return self.candidate, self.seed

    @property
    def error(self) -> str:
        """The fault in one line; empty if there is none."""
        return "" if self.fault is None else str(self.fault)

    @property
    def cells(self) -> dict[str, Any]:
        """The values of COLUMNS."""
        data = "" if self.fault is None else json.dumps(self.fault.data, ensure_ascii=False)
        return {name: data if name == "fault" else getattr(self, name) for name in COLUMNS}

    @property
    def failed(self) -> bool:
        return self.status in (FAILED, FAILED_AT_LOAD)

    @property
    def measured(self) -> bool:
        """Whether this row counts in the candidate's mean."""
        return self.status in (OK, RUNNING, STOPPED) and math.isfinite(self.fitness)

    @property
    def whole(self) -> bool:
        """Whether it has a fitness, and no race stopped its training."""
        return self.measured and not self.stopped_at


def whole_fitness(rows: Iterable[Result]) -> dict[str, dict[int, float]]:
    """Return the fitness of whole trainings by candidate and seed."""
    fitness: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.whole:
            fitness.setdefault(row.candidate, {})[row.seed] = row.fitness
    return fitness


def fewest_episodes(rows: Iterable[Result]) -> int:
    """Return the least number of episodes of a fitness; 1 if it is not known."""
    return min((row.episodes for row in rows if row.measured and row.episodes), default=1)


def best_mean(scores: Iterable[tuple[str, float]]) -> tuple[str, float] | None:
    """Return the candidate of the highest mean fitness over its seeds, and this mean; None without a finite fitness.

    Args:
        scores: name and fitness of each group.
    """
    by_name: dict[str, list[float]] = {}
    for name, fitness in scores:
        if math.isfinite(fitness):
            by_name.setdefault(name, []).append(fitness)
    means = {name: math.fsum(values) / len(values) for name, values in by_name.items()}
    return max(means.items(), key=lambda pair: pair[1], default=None)


_TYPES: dict[str, Any] = {field.name: field.type for field in fields(Result)}
# ``error`` is for readers; ``fault`` has the same as JSON, and is what is read back
COLUMNS = (*(name for name in _TYPES if name not in METRICS and name != "fault"), *METRICS, "error", "fault")
_NEEDED = ("candidate", "seed", "status", "fitness")


def write_results(path: str | Path, results: Sequence[Result]) -> None:
    """Write results.csv atomically, in the order given."""
    write_atomic(path, table_text(COLUMNS, ([*result.cells.values()] for result in results)))


def read_results(path: str | Path) -> list[Result]:
    """Read results.csv by the names of its columns.

    Columns that are missing have their defaults; unknown columns are left out.

    Raises ValueError if a needed column is missing or a row is incomplete; the message names the file.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from error
    if not text.endswith("\n"):
        raise ValueError(f"{path}: its end is missing")
    header, *rows = csv.reader(io.StringIO(text))
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise ValueError(f"{path}: not a results.csv; it has no column {', '.join(missing)}")
    return [_result(header, row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]


def _result(header: Sequence[str], row: Sequence[str], where: str) -> Result:
    if len(row) != len(header):
        raise ValueError(f"{where} has {len(row)} cells and not {len(header)}")
    try:
        cells = dict(zip(header, row))
        data = cells.pop("fault", "")
        fault = read_fault(parse_json(data) if data else None)
        values = {name: _cell(_TYPES[name], text) for name, text in cells.items() if name in _TYPES}
        return Result(**values, fault=fault)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _cell(kind: Callable[[str], Any], text: str) -> Any:
    if kind is str:
        return one_line(text)
    return NAN if kind is float and not text else kind(text)


def result_of(fields: Mapping[str, Any]) -> Result:
    """Return the Result of ``dataclasses.asdict``."""
    return Result(**{**fields, "fault": read_fault(fields["fault"])})
