"""The result of a run as an object, read from the files of its folder."""

import contextlib
import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.core.plain_text import visible
from envcoder_bench.core.shell import display_path, resume_call
from envcoder_bench.report.breakdown import Breakdown
from envcoder_bench.report.table import render_table
from envcoder_bench.report.terms.table import render_studies
from envcoder_bench.results.csv_log import KEYS
from envcoder_bench.results.effects import COLUMNS as EFFECT_COLUMNS
from envcoder_bench.results.effects import Study
from envcoder_bench.results.last_quarter import LastQuarter
from envcoder_bench.results.logs import (
    ComponentLog,
    Course,
    CurveLog,
    Point,
    PointLog,
    read_courses,
    read_curves,
    read_points,
)
from envcoder_bench.results.pairs import Pair, Pairs, run_pairs
from envcoder_bench.results.ranking import Ranked, fitness_model, rank
from envcoder_bench.results.rows import COLUMNS, SKIPPED, Result, read_results
from envcoder_bench.run.fitness import fitness_bounds, fitness_meaning, recorded_meaning
from envcoder_bench.run.folder.ranked import TERMS, compare_pairs, picture, rank_run, run_studies
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.spec import RunConfig, RunSpec

_LOGS = {"curves": CurveLog, "components": ComponentLog, "points": PointLog}


@dataclass(frozen=True)
class RunResult:
    """The result of a run that ended or was stopped. Tables are pandas DataFrames with the columns of the CSV files.

    Attributes:
        folder: the folder of the run; ``envcoder_bench.resume(folder)`` resumes a run that is not complete.
        stopped_by, stopped_at: for a stopped run, the source of the StopRequest and the iteration.
        fitness_meaning: what fitness measures, in one line.
        rows: the rows of results.csv.
        ranked: the results over the seeds of each candidate, best first.
        trained: whether this call trained; False if the run was already complete.
        breakdown: with ``profile=True``, the profile of the run.
    """

    folder: Path
    complete: bool
    fitness_meaning: str
    rows: Sequence[Result] = field(repr=False)
    ranked: Sequence[Ranked] = field(repr=False)
    stopped_by: int | str | None = None
    stopped_at: str = ""
    trained: bool = True
    breakdown: Breakdown | None = field(default=None, repr=False)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """A row for each candidate, best first: rank (empty without a fitness), fitness with its 95 % interval,
        difference to the human baseline, status and more, see ``results.ranking.Ranked``."""
        rows = [{**asdict(row), "baseline": row.baseline, "error": row.error} for row in self.ranked]
        columns = [*Ranked.__dataclass_fields__, "baseline", "error"]
        return pd.DataFrame(rows, columns=columns).drop(columns="faults").astype({"rank": "Int64"})

    @cached_property
    def results(self) -> pd.DataFrame:
        """A row for each candidate and seed: results.csv."""
        return pd.DataFrame([row.cells for row in self.rows], columns=list(COLUMNS))

    @cached_property
    def curves(self) -> pd.DataFrame:
        """A row for each logged iteration, candidate and seed: curves.csv."""
        return self._log("curves")

    @cached_property
    def components(self) -> pd.DataFrame:
        """A row for each logged iteration, candidate, seed and component of its reward: components.csv."""
        return self._log("components")

    @cached_property
    def points(self) -> pd.DataFrame:
        """A row for each evaluation, candidate, seed and component of its reward: points.csv."""
        return self._log("points")

    def evaluations(self) -> list[Point]:
        """``points`` as objects, one for each evaluation, candidate and seed."""
        path = RunFolder(self.folder).points
        return read_points(path) if path.is_file() else []

    def courses(self) -> list[Course]:
        """Where in the episodes the fitness of each candidate and seed comes from, by tenths."""
        path = RunFolder(self.folder).step_fitness
        return read_courses(path) if path.is_file() else []

    @cached_property
    def policies(self) -> "Policies":
        """The policy file of each candidate and seed, ``policies["calm", 0]``, which rl_games' player can load."""
        several = len({row.seed for row in self.rows}) > 1  # policy.pth is then the best seed's
        policies = Policies()
        for row in self.rows:
            name = f"policy_seed_{row.seed}.pth" if several else "policy.pth"
            path = RunFolder(self.folder).candidate(row.candidate) / name
            if row.measured and path.is_file():
                policies[row.key] = path
        return policies

    @cached_property
    def terms(self) -> pd.DataFrame:
        """A row for each variant of ``terms=True`` or ``sweep``, see ``results.effects.Effect``: terms.csv."""
        path = self.folder / TERMS
        columns = list(EFFECT_COLUMNS)
        return (
            pd.read_csv(path, dtype={"candidate": str, "original": str})
            if path.is_file()
            else pd.DataFrame(columns=columns)
        )

    @cached_property
    def studies(self) -> Sequence[Study]:
        """``terms`` as objects, one for each candidate that has variants."""
        if not self.complete or not (self.folder / TERMS).is_file():
            return []
        folder = RunFolder(self.folder)
        try:
            cfg, sources = folder.read()
        except UserError:  # a damaged folder still has its ranking
            return []
        return run_studies(folder, cfg, sources, self.rows)

    @cached_property
    def pairs(self) -> Pairs:
        """The differences of all pairs of candidates that can be compared; empty for a damaged folder."""
        folder = RunFolder(self.folder)
        try:
            cfg, _ = folder.read()
        except UserError:  # a damaged folder still has its ranking
            return run_pairs(fitness_model([]), self.ranked)
        return compare_pairs(folder, cfg, self.rows, self.ranked)

    @property
    def last_quarter(self) -> LastQuarter | None:
        """How well the candidates' ranks agree over the last quarter of the training; None if it is unknown."""
        return self.pairs.last_quarter

    def difference(self, first: str, second: str) -> Pair:
        """Return which of two candidates is better: difference, interval, p-value, verdict, and seeds that would tell.

        Raises UserError with near matches if the run has no such candidate.
        """
        return self.pairs.named(first, second)

    @property
    def failed(self) -> dict[str, str]:
        """The first error of each candidate that failed with any of its seeds."""
        errors: dict[str, str] = {}
        for row in self.ranked:
            if row.status != SKIPPED and row.faults:
                errors[row.candidate] = row.error
        return errors

    @property
    def succeeded(self) -> bool:
        """Whether any candidate other than the baselines has a fitness; without candidates, whether a baseline has."""
        candidates = [row for row in self.ranked if not row.baseline and row.status != SKIPPED] or self.ranked
        return any(row.rank is not None for row in candidates)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json; empty until the run is complete."""
        return RunFolder(self.folder).recorded

    @property
    def pictures(self) -> list[Path]:
        """The PNG files of sweeps."""
        return [path for study in self.studies if (path := self.folder / picture(study)).is_file()]

    def table(self, width: int = 100, bold: bool = False) -> str:
        """Return the ranking with errors and notes as text, in lines of at most ``width``; ``bold`` for a terminal.

        Of a run with variants, their effects follow.
        """
        pairs = None if self.studies else self.pairs  # a variant is compared with its original only
        ranking = render_table(
            self.ranked, self.fitness_meaning, width, bold, folder=display_path(self.folder), pairs=pairs,
            best=not self.studies,
        )  # fmt: skip
        effects = visible(render_studies(self.studies, width, display_path(self.folder)))
        return f"{ranking}\n{effects}" if effects else ranking

    def _repr_html_(self) -> str:  # Jupyter asks for it
        from envcoder_bench.report.page.shell import PAGE

        page = self.folder / PAGE
        link = f'<a href="{html.escape(display_path(page))}">{PAGE}</a>' if page.is_file() else ""
        return f"<pre>{html.escape(str(self))}</pre>{link}"

    def __str__(self) -> str:
        if self.complete:
            return self.table()
        remedy = f"stopped {self.stopped_at}; {resume_call(self.folder)}"
        return f"{remedy}\n\n{self.table()}" if self.rows else remedy

    def _log(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.csv"
        return read_curves(path) if path.is_file() else pd.DataFrame(columns=[*KEYS, *_LOGS[name].columns])


class UnknownPolicy(UserError, KeyError):
    """A name and seed have no policy; the message names near matches."""

    def __str__(self) -> str:
        return str(self.args[0])


class Policies(dict[tuple[str, int], Path]):
    """Policy files by candidate and seed."""

    def __missing__(self, key: object) -> NoReturn:
        names = list(dict.fromkeys(name for name, _ in self))
        name, seed = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
        seeds = [str(each) for candidate, each in self if candidate == name]
        if seed is None or not names:
            reason = 'the keys are pairs such as ["human", 0]' if names else "the run has no policies yet"
        elif seeds:
            reason = f"the seeds of {name} are {', '.join(seeds)}"
        else:
            reason = f"no policy of {name!r}{near_matches(str(name), names)}; there are {', '.join(names)}"
        raise UnknownPolicy(reason)


def unfinished(
    folder: RunFolder, spec: RunSpec, rows: Sequence[Result], stopped_by: int | str | None, stopped_at: str
) -> RunResult:
    """Return the result of a stopped run; ``rows`` are used if results.csv does not exist yet."""
    with contextlib.suppress(OSError, ValueError):  # written at every evaluation
        rows = read_results(folder.results)
    ranked = rank(rows, fitness_bounds(spec.task, spec.config))
    return RunResult(folder.path, False, fitness_meaning(spec), rows, ranked, stopped_by, stopped_at)


def finished(folder: RunFolder, cfg: RunConfig, trained: bool = False, breakdown: Breakdown | None = None) -> RunResult:
    """Return the result of a complete run.

    Raises UserError if results.csv is damaged, or a file of the fitness is missing or was changed.
    """
    try:
        rows = read_results(folder.results)
    except (OSError, ValueError) as error:
        what = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else f"is damaged ({error})"
        raise UserError(f"{folder.results} {what}: restore a copy of it") from error
    folder.note_changed(folder.results)
    meaning = recorded_meaning(folder, cfg)
    return RunResult(
        folder.path, True, meaning, rows, rank_run(folder, cfg, rows), trained=trained, breakdown=breakdown
    )
