"""The ranking of a run from the files of its folder."""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.report.logs import Evaluation, Point, read_episodes, read_points
from envcoder_bench.report.ranking import Ranked, rank
from envcoder_bench.report.results import Result
from envcoder_bench.report.statistics import UNBOUNDED
from envcoder_bench.run.fitness import fitness_bounds
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.tasks.registry import find_spec

log = logging.getLogger(__name__)


def rank_run(folder: RunFolder, cfg: RunConfig, rows: Sequence[Result]) -> list[Ranked]:
    """Rank the rows of a run, with what its final evaluation and the course of its training say."""
    evaluated = bounds_of(cfg), final_evaluation(folder, cfg)
    ranked = rank(rows, *evaluated)
    places = [row.rank for row in ranked if row.rank is not None]
    if len(set(places)) == len(places):
        return ranked
    try:
        status = folder.points.stat()
        return rank(rows, *evaluated, _points(folder.points, status.st_mtime_ns, status.st_size))
    except (OSError, ValueError) as error:  # a ranking must not depend on it
        log.warning("%s cannot be read, so that ties are not told apart: %s", folder.points, error)
        return ranked


@functools.lru_cache(maxsize=1)  # the end of a run ranks the same rows several times
def _points(path: Path, changed: int, size: int) -> list[Point]:
    return read_points(path)


def bounds_of(cfg: RunConfig) -> tuple[float, float]:
    """Return the bounds of a run's fitness; infinite if its task no longer exists."""
    try:
        return fitness_bounds(find_spec(cfg.address), cfg)
    except (UserError, ValueError, OSError):
        return UNBOUNDED


def final_evaluation(folder: RunFolder, cfg: RunConfig) -> Evaluation | None:
    """Return the episodes' fitness in the final evaluation; None if there is no record.

    Those of the untrained policy, which are of iteration 0, belong to it.
    """
    try:
        by_iteration = read_episodes(folder.episodes)
        final = by_iteration.get(cfg.learning_iterations)
        return None if final is None else {**by_iteration.get(0, {}), **final}
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # a ranking must not depend on it
        log.warning(
            "%s cannot be read, so that intervals leave out how much episodes differ: %s", folder.episodes, error
        )
        return None
