"""The ranking of a run from the files of its folder."""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.settings import plain
from envcoder_bench.core.yaml_files import parse_yaml
from envcoder_bench.report.terms.plot import plot_sweep
from envcoder_bench.results.effects import Study, studies, write_effects
from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.last_quarter import LastQuarter, last_quarter
from envcoder_bench.results.logs import Point, read_episodes, read_points
from envcoder_bench.results.pairs import Pairs, run_pairs
from envcoder_bench.results.ranking import Ranked, fitness_model, rank
from envcoder_bench.results.rows import Result
from envcoder_bench.results.statistics import UNBOUNDED, Evaluation
from envcoder_bench.run.fitness import fitness_bounds, recorded_task
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import CandidateSource, RunConfig
from envcoder_bench.shaping.variants import Variant

log = logging.getLogger(__name__)


def rank_run(folder: RunFolder, cfg: RunConfig, rows: Sequence[Result]) -> list[Ranked]:
    """Rank the rows of a run, with what its final evaluation and the course of its training say."""
    evaluated = bounds_of(folder, cfg), final_evaluation(folder, cfg)
    looks = looks_at(folder, cfg)
    ranked = rank(rows, *evaluated, looks=looks)
    places = [row.rank for row in ranked if row.rank is not None]
    if len(set(places)) == len(places):
        return ranked
    try:
        return rank(rows, *evaluated, _points(folder), looks)
    except (OSError, ValueError) as error:  # a ranking must not depend on it
        log.warning("%s cannot be read, so that ties are not told apart: %s", folder.points, error)
        return ranked


def compare_pairs(folder: RunFolder, cfg: RunConfig, rows: Sequence[Result], ranked: Sequence[Ranked]) -> Pairs:
    """Compare all pairs of a ranked run."""
    model = run_model(folder, cfg, rows)
    return run_pairs(model, ranked, looks_at(folder, cfg), last_quarter=ranks_held(folder, cfg, rows))


def run_model(folder: RunFolder, cfg: RunConfig, rows: Sequence[Result]) -> FitnessModel:
    """Return what a run knows of its candidates whose training is complete."""
    return fitness_model(rows, bounds_of(folder, cfg), final_evaluation(folder, cfg))


def ranks_held(folder: RunFolder, cfg: RunConfig, rows: Sequence[Result]) -> LastQuarter | None:
    """Return how well the ranks agree over the last quarter of the training; None if it is unknown."""
    complete = {row.key for row in rows if row.whole}
    try:
        points = _points(folder)
    except (OSError, ValueError):  # ``rank_run`` warns where it matters
        return None
    short = None if cfg.evaluation.record else cfg.evaluation.point_steps
    return last_quarter(points, complete, bounds_of(folder, cfg), short)


def _points(folder: RunFolder) -> list[Point]:
    status = folder.points.stat()
    return _read_points(folder.points, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=1)  # the end of a run ranks the same rows several times
def _read_points(path: Path, changed: int, size: int) -> list[Point]:
    return read_points(path)


def bounds_of(folder: RunFolder, cfg: RunConfig) -> tuple[float, float]:
    """Return the bounds of a run's fitness, as the run recorded them; infinite if they are not known.

    No code of the folder is executed.
    """
    record = folder.provenance.fitness if folder.provenance is not None else {}
    try:
        if cfg.fitness is None and record:
            low, high = record["fitness_bounds"]
            return UNBOUNDED[0] if low is None else float(low), UNBOUNDED[1] if high is None else float(high)
        return fitness_bounds(recorded_task(cfg), cfg)
    except (UserError, ValueError, OSError, KeyError, TypeError):
        return UNBOUNDED


def looks_at(folder: RunFolder, cfg: RunConfig) -> int:
    """Return how often the candidates of a run were tested: before each extension by seeds or iterations, and now.

    A run of a single seed has no tests. Candidates that were added are tested together with the others, which changes
    no result of those.
    """
    tested: set[tuple[object, object]] = {(seed_count(cfg), cfg.learning_iterations)}
    for text in folder.provenance.before if folder.provenance is not None else ():
        try:
            before = plain(parse_yaml(text))
        except ValueError:  # a damaged copy, of a run that was complete
            before = {}
        tested.add((before.get("seeds"), before.get("learning_iterations")))
    return max(1, sum(isinstance(seeds, int) and seeds > 1 for seeds, _ in tested))


def final_evaluation(folder: RunFolder, cfg: RunConfig) -> Evaluation | None:
    """Return the fitness of the final evaluation's episodes; None without a record.

    The episodes of the untrained policy, which are recorded at iteration 0, are among them.
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


# the effects of changes, in a run with variants


TERMS = "terms.csv"


def variants_in(sources: Sequence[CandidateSource]) -> dict[str, Variant]:
    """Return the variants among a run's candidates by name."""
    return {source.name: source.variant for source in sources if source.variant is not None}


def run_studies(
    folder: RunFolder, cfg: RunConfig, sources: Sequence[CandidateSource], rows: Sequence[Result]
) -> list[Study]:
    """Compare the variants of a run with their originals; empty for a run without variants."""
    variants = variants_in(sources)
    if not variants:
        return []
    points: list[Point] = []
    try:
        points = _points(folder)
    except (OSError, ValueError) as error:  # the effects on fitness do not depend on it
        log.warning("%s cannot be read, so that the speed of learning is not compared: %s", folder.points, error)
    return studies(variants, rows, final_evaluation(folder, cfg), points, bounds_of(folder, cfg), looks_at(folder, cfg))


def picture(study: Study) -> str:
    """Return the name of a sweep's picture."""
    return f"sweep_{study.original}.png"


def write_studies(
    folder: RunFolder, cfg: RunConfig, sources: Sequence[CandidateSource], rows: Sequence[Result]
) -> dict[str, str]:
    """Write terms.csv and the pictures of sweeps; return the files by what they are."""
    try:
        all_studies = run_studies(folder, cfg, sources, rows)
        if not all_studies:
            return {}
        write_effects(folder.path / TERMS, all_studies)
        sweeps = [study for study in all_studies if study.is_sweep]
        for study in sweeps:
            plot_sweep(study, folder.path / picture(study), cfg.task_title)
    except OSError:
        raise
    except Exception as error:  # the ranking must not depend on it
        log.warning("the effects of the variants could not be written: %s", error, exc_info=True)
        return {}
    return {"terms": TERMS, **{Path(picture(study)).stem: picture(study) for study in sweeps}}
