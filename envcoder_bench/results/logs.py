"""The log files that a run writes during training, and how they are read.

curves.csv and components.csv have the learning curves, points.csv the progress at each evaluation, episodes.csv the
fitness of its episodes, step_fitness.csv where in the episodes it comes from; trackers such as TensorBoard get the
scalars.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from envcoder_bench.core.errors import UserError, message_line
from envcoder_bench.core.plain_text import one_line
from envcoder_bench.results.csv_log import KEYS, CsvLog, number, read_rows
from envcoder_bench.results.statistics import Evaluation
from envcoder_bench.results.tensorboard import TensorboardLog

if TYPE_CHECKING:
    import pandas as pd

CURVES, COMPONENTS, POINTS, EPISODES = "curves.csv", "components.csv", "points.csv", "episodes.csv"
STEP_FITNESS = "step_fitness.csv"
TENSORBOARD = "tensorboard"
SCALARS = ("fitness", "shaped_return", "kl", "learning_rate", "entropy", "value_loss")
_NUMBERS = ("fitness", "episode_length", "shaped_return")  # a point's


# learning curves


class CurveLog(CsvLog):
    """Appends to curves.csv: a row per logged iteration, candidate and seed."""

    columns = SCALARS

    def add(
        self, iteration: int, env_steps: int, candidate: str, seed: int, scalars: Mapping[str, float | None]
    ) -> None:
        """Add a row, which is on disk after the next ``flush``.

        Args:
            scalars: values named as in SCALARS; missing values, None and NaN give empty cells.

        Raises:
            KeyError: if a scalar is not one of SCALARS.
        """
        unknown = [name for name in scalars if name not in SCALARS]
        if unknown:
            raise KeyError(f"curves.csv has no column {unknown[0]!r}; use one of {', '.join(SCALARS)}")
        self.write(iteration, env_steps, candidate, seed, [number(scalars.get(name)) for name in SCALARS])


class ComponentLog(CsvLog):
    """Appends to components.csv: a row per logged iteration, candidate, seed and component of its reward.

    Every candidate has its own components. With a row for each the file grows linearly with the number of candidates;
    with a column for each it would grow quadratically.
    """

    columns = ("component", "mean")

    def add(self, iteration: int, env_steps: int, candidate: str, seed: int, means: Mapping[str, float]) -> None:
        """Add a row for each component with its mean per environment and step."""
        for name, mean in means.items():
            self.write(iteration, env_steps, candidate, seed, [one_line(name), number(mean)])


def read_curves(path: str | Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Read curves.csv, components.csv or step_fitness.csv; ``columns`` must be there besides KEYS, with numbers.

    Names are strings (``001`` stays so), empty cells and infinity are NaN. Raises UserError if it is damaged.
    """
    import pandas as pd  # slow to import, and --check does not need it

    try:
        read = pd.read_csv(path, dtype={"candidate": str, "component": str}, keep_default_na=False, na_values=[""])
    except ValueError as error:
        raise _damaged(path, message_line(error)) from error
    if not {*KEYS, *columns} <= {*read.columns}:
        raise _damaged(path, f"its columns must begin with {', '.join((*KEYS, *columns))}")
    for column in columns:
        if read[column].dtype.kind not in "if" and len(read):
            raise _damaged(path, f"{column} has other values than numbers")
    return read.replace([math.inf, -math.inf], math.nan)  # a fitness that is infinite is none, and cannot be drawn


def _damaged(path: str | Path, reason: str) -> UserError:
    return UserError(f"{path} is damaged: {reason}; restore a copy of it, or delete it")


def over_seeds(curves: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the mean, least and greatest value of the seeds by candidate and env_steps.

    Seeds of an extended run can have been evaluated after other numbers of env-steps. Between two evaluations of a seed
    its value is interpolated, so that each row is of all seeds that were being trained then.
    """
    import pandas as pd  # slow to import, and --check does not need it

    measured: Any = curves[curves[metric].notna()]
    wide = measured.pivot_table(index=["candidate", "env_steps"], columns="seed", values=metric)
    for name in wide[wide.isna().any(axis=1)].index.unique("candidate"):
        filled = wide.loc[name].interpolate(method="index", limit_area="inside")
        wide.loc[name] = filled.to_numpy()
    # not agg(axis=1): pandas 3.0.0 calls it for each row, and 2.0.0 returns objects
    return pd.DataFrame({"mean": wide.mean(axis=1), "min": wide.min(axis=1), "max": wide.max(axis=1)})


# evaluations


class ComponentStats(NamedTuple):
    """Statistics per environment and step of training since the previous point."""

    mean: float
    min: float
    max: float


@dataclass(frozen=True)
class Point:
    """One evaluation of one candidate and seed. Unknown numbers are NaN.

    Attributes:
        env_steps: control steps of this candidate and seed so far.
        fitness: mean over the episodes of the unshaped evaluation.
        episode_length: mean length of these episodes, control steps.
        components: mean, min and max of ``total reward`` and of each reward component in training since the previous
            point; ComponentStats if read from points.csv.
        shaped_return: mean return of the candidate's own reward over the last training episodes.
    """

    candidate: str
    seed: int
    iteration: int
    env_steps: int
    fitness: float
    episode_length: float
    components: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    shaped_return: float = math.nan


class PointLog(CsvLog):
    """Appends to points.csv."""

    columns = (*_NUMBERS, "component", *ComponentStats._fields)

    def add(self, point: Point) -> None:
        """Add the rows of a point, which are on disk after the next ``flush``."""
        same = [number(getattr(point, name)) for name in _NUMBERS]
        for name, stats in point.components.items() or [("", (math.nan,) * 3)]:
            cells = [*same, one_line(name), *map(number, stats)]
            self.write(point.iteration, point.env_steps, point.candidate, point.seed, cells)


def read_points(path: str | Path) -> list[Point]:
    """Read points.csv; the points are in the order of the file. Raises ValueError if the file has other columns."""
    columns = (*KEYS, *PointLog.columns)
    components: dict[tuple[str, ...], dict[str, ComponentStats]] = {}
    for cells in read_rows(path, columns):
        row = dict(zip(columns, cells))
        stats = components.setdefault(tuple(row[name] for name in (*KEYS, *_NUMBERS)), {})
        if row["component"]:
            stats[row["component"]] = ComponentStats(*(_value(row[name]) for name in ComponentStats._fields))
    points: list[Point] = []
    for (iteration, env_steps, candidate, seed, *numbers), stats in components.items():
        fitness, length, shaped_return = map(_value, numbers)
        when = int(iteration), int(env_steps)
        points.append(Point(candidate, int(seed), *when, fitness, length, stats, shaped_return))
    return points


def _value(cell: str) -> float:
    return float(cell) if cell else math.nan


class EpisodeLog(CsvLog):
    """Appends to episodes.csv."""

    columns = ("fitness",)

    def add(self, iteration: int, env_steps: int, candidate: str, seed: int, fitness: Sequence[float]) -> None:
        """Add an evaluation; the k-th numbers of all rows of an iteration and a seed are of the same start state."""
        self.write(iteration, env_steps, candidate, seed, [" ".join(map(number, fitness))])


def read_episodes(path: str | Path) -> dict[int, Evaluation]:
    """Read episodes.csv: the evaluations by iteration.

    Raises ValueError if the file has other columns, or a row that is not whole.
    """
    evaluations: dict[int, Evaluation] = {}
    for line, row in enumerate(read_rows(path, (*KEYS, *EpisodeLog.columns)), 2):
        try:
            iteration, _, candidate, seed, fitness = row
            evaluations.setdefault(int(iteration), {})[candidate, int(seed)] = tuple(map(float, fitness.split()))
        except ValueError as error:
            raise ValueError(f"{path}: line {line}: {error}") from error
    return dict(sorted(evaluations.items()))


class StepFitnessLog(CsvLog):
    """Appends to step_fitness.csv: a row per bin of control steps of the episodes of an evaluation."""

    columns = ("step", "seconds", "fitness", "active")

    def add(
        self,
        iteration: int,
        env_steps: int,
        candidate: str,
        seed: int,
        ends: Sequence[int],
        means: tuple[Sequence[float], Sequence[float]],
        dt: float,
    ) -> None:
        """Add an evaluation: the last step of each bin, and means over episodes and steps, see ``Episodes``."""
        for step, fitness, active in zip(ends, *means):
            cells = [str(step), number(step * dt, 6), number(fitness, 6), number(active, 6)]
            self.write(iteration, env_steps, candidate, seed, cells)


@dataclass(frozen=True)
class Course:
    """Where in the episodes of the last evaluation of a candidate and seed its fitness comes from.

    Attributes:
        fitness, active: the fitness of a step, and the share of episodes that have not ended early, of each part of a
            full episode.
    """

    candidate: str
    seed: int
    fitness: tuple[float, ...]
    active: tuple[float, ...]


def read_courses(path: str | Path, parts: int = 10) -> list[Course]:
    """Read step_fitness.csv: means over equal parts of the episode. Raises ValueError if it has other columns."""
    bins: dict[tuple[str, int], dict[int, list[tuple[int, float, float]]]] = {}
    for iteration, _, candidate, seed, step, _, fitness, active in read_rows(path, (*KEYS, *StepFitnessLog.columns)):
        evaluations = bins.setdefault((candidate, int(seed)), {})
        evaluations.setdefault(int(iteration), []).append((int(step), _value(fitness), _value(active)))
    courses = []
    for (candidate, seed), evaluations in bins.items():
        rows = sorted(evaluations[max(evaluations)])
        groups: list[list[tuple[int, float, float]]] = [[] for _ in range(min(parts, len(rows)))]
        begin = 0
        for end, of_step, share in rows:  # weighted by their steps
            part = (begin + end) * len(groups) // (2 * rows[-1][0] + 1)
            groups[part].append((end - begin, of_step, share))
            begin = end
        groups = [group for group in groups if group]
        means = [
            tuple(sum(row[0] * row[k] for row in group) / sum(row[0] for row in group) for group in groups)
            for k in (1, 2)
        ]
        courses.append(Course(candidate, seed, means[0], means[1]))
    return courses


# all logs of a run


class ScalarLog(Protocol):
    """Receives scalars of each candidate and seed during training."""

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        """Add scalars at ``env_steps``; None and NaN are left out."""

    def flush(self) -> None:
        """Pass on what was added."""

    def close(self) -> None:
        """End the log; a later run may continue it."""


class SeveralLogs:
    """Scalar logs that receive the same."""

    def __init__(self, logs: Sequence[ScalarLog]) -> None:
        self._logs = logs

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        for log in self._logs:
            log.add(candidate, seed, env_steps, scalars)

    def flush(self) -> None:
        for log in self._logs:
            log.flush()

    def close(self) -> None:
        for log in self._logs:
            log.close()


@dataclass
class Rows:
    """Rows that were logged in another process.

    Attributes:
        texts: by file, its rows as text.
        counts: by file, the number of rows.
        scalars: arguments of calls of ``ScalarLog.add``.
    """

    texts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    scalars: list[tuple[Any, ...]] = field(default_factory=list)

    def extend(self, later: Rows) -> None:
        """Add rows that were logged later."""
        for name, text in later.texts.items():
            self.texts[name] = self.texts.get(name, "") + text
        for name, count in later.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.scalars += later.scalars


class CollectedScalars(ScalarLog):
    """Scalars in memory."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def add(self, candidate: str, seed: int, env_steps: int, scalars: Mapping[str, float | None]) -> None:
        self.calls.append((candidate, seed, env_steps, scalars))


_TABLES: dict[str, type[CsvLog]] = {
    CURVES: CurveLog,
    COMPONENTS: ComponentLog,
    POINTS: PointLog,
    EPISODES: EpisodeLog,
    STEP_FITNESS: StepFitnessLog,
}


@dataclass(frozen=True)
class RunLogs:
    """The logs of a run: the CSV files that _TABLES names, and trackers."""

    curves: CurveLog
    components: ComponentLog
    points: PointLog
    episodes: EpisodeLog
    step_fitness: StepFitnessLog
    scalars: ScalarLog

    @classmethod
    def begin(cls, folder: Path, trackers: Sequence[ScalarLog] = ()) -> RunLogs:
        """Create new files in a run's folder; ``trackers`` receive the scalars of training besides TensorBoard."""
        tables: Any = [table(folder / name) for name, table in _TABLES.items()]
        return cls(*tables, scalars=SeveralLogs([TensorboardLog(folder / TENSORBOARD), *trackers]))

    @classmethod
    def resume(
        cls,
        folder: Path,
        iteration: int | Mapping[tuple[str, int], int],
        whole: Collection[tuple[str, int]],
        rows: Mapping[str, int],
        trackers: Sequence[ScalarLog] = (),
    ) -> RunLogs:
        """Continue after ``iteration``; arguments as of ``CsvLog.resume`` and ``begin``, ``rows`` by file.

        Raises ValueError if a file is damaged.
        """
        tables: Any = [table.resume(folder / name, iteration, whole, rows.get(name)) for name, table in _TABLES.items()]
        return cls(*tables, scalars=SeveralLogs([TensorboardLog(folder / TENSORBOARD), *trackers]))

    @classmethod
    def collect(cls) -> RunLogs:
        """Create logs in memory, whose rows ``take`` returns."""
        tables: Any = [table.collect() for table in _TABLES.values()]
        return cls(*tables, scalars=CollectedScalars())

    def take(self) -> Rows:
        """Return the rows since the last call. Of logs in files only their number: ``append`` has nothing to add."""
        taken = {name: log.take() for name, log in self._files.items()}
        rows = Rows(counts={name: count for name, (_, count) in taken.items()})
        if isinstance(self.scalars, CollectedScalars):
            rows.texts = {name: text for name, (text, _) in taken.items()}
            rows.scalars, self.scalars.calls = self.scalars.calls, []
        return rows

    def append(self, rows: Rows) -> None:
        """Add rows of another process; they are on disk when this returns."""
        for name, text in rows.texts.items():
            log = self._files[name]
            log.append(text, rows.counts[name])
            log.flush()
        for scalars in rows.scalars:
            self.scalars.add(*scalars)
        self.scalars.flush()

    @property
    def _files(self) -> dict[str, CsvLog]:
        return {name: getattr(self, name.removesuffix(".csv")) for name in _TABLES}

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows by file."""
        return {name: log.rows for name, log in self._files.items()}

    @property
    def lost(self) -> dict[str, int]:
        """Number of rows missing after ``resume``, by file that has lost any."""
        return {name: log.lost for name, log in self._files.items() if log.lost}

    def close(self) -> None:
        for log in self._files.values():
            log.close()
        self.scalars.close()
