"""The parts that the report of a search shares with the page of a run: ranking, videos, curves, candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envcoder_bench.report.logs import COMPONENTS, CURVES, read_curves
from envcoder_bench.report.page.content import PageCandidate
from envcoder_bench.report.ranking import NAN, Ranked
from envcoder_bench.report.statistics import Difference, FitnessModel
from envcoder_bench.report.words import listed, without_folders
from envcoder_bench.search.family import first_parent
from envcoder_bench.search.records import compared
from envcoder_bench.search.source_diff import without_untouched
from envcoder_bench.tasks.base import HUMAN

if TYPE_CHECKING:
    import pandas as pd

    from envcoder_bench.search.records import Archive, Attempt


def ranking(archive: Archive) -> list[Ranked]:
    """Return all attempts and baselines as rows of a ranking: by their score, then those without a fitness."""
    human, model = archive.baselines.get(HUMAN), archive.model()
    every = [archive.find(name) for name in archive.order()]
    rows = [_row(attempt, k, human, archive, model) for k, attempt in enumerate(every, 1)]
    known = {attempt.name for attempt in every}
    return rows + [_row(a, None, human, archive, model) for a in archive.attempts if a.name not in known]


def _row(attempt: Attempt, rank: int | None, human: Attempt | None, archive: Archive, model: FitnessModel) -> Ranked:
    low, high = archive.interval(attempt, model) or (NAN, NAN)
    versus = None
    if human is not None and attempt.name != human.name:
        versus = compared(attempt, human, model)
    versus = versus or Difference()
    return Ranked(
        rank=rank,
        candidate=attempt.name,
        status=attempt.outcome,
        fitness=NAN if attempt.fitness is None else attempt.fitness,
        fitness_ci_low=low,
        fitness_ci_high=high,
        interval_over="" if low != low else "seeds" if len(attempt.by_seed) > 1 else "episodes",
        seeds=tuple(sorted(attempt.by_seed)),
        vs_human=versus.mean,
        vs_human_ci_low=versus.low,
        vs_human_ci_high=versus.high,
        stopped_at=attempt.stopped_at,
        episode_length=NAN if attempt.episode_length is None else attempt.episode_length,
        errors=(without_folders(attempt.error),) if attempt.error else (),
    )


def candidates(archive: Archive) -> list[PageCandidate]:
    """Return the sources of all attempts and baselines, compared with their parents."""
    found = []
    for attempt in [*archive.references, *archive.attempts]:
        parent = first_parent(archive, attempt)
        facts = {
            "round": str(attempt.round or ""),
            "parents": ", ".join(attempt.parents),
            "origin": without_folders(attempt.origin),
            "left out": f"{listed(attempt.left_out)}: not functions of this search" if attempt.left_out else "",
        }
        against = None if parent is None else (parent.name, without_untouched(parent, attempt))
        source = attempt.source or None
        found.append(PageCandidate(attempt.name, f"{attempt.name}.py" if source else "", source, facts, against))
    return found


def logs(folder: Path, rounds: int) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Return the learning curves and the reward components of all rounds of a search; None without any."""
    runs = [folder / "rounds" / str(number) / "run" for number in range(1, rounds + 1)]
    return _together([run / CURVES for run in runs]), _together([run / COMPONENTS for run in runs])


def _together(paths: Sequence[Path]) -> pd.DataFrame | None:
    import pandas as pd

    found = []
    for path in paths:
        try:
            found.append(read_curves(path))
        except (OSError, ValueError):  # not trained yet, or damaged
            continue
    return pd.concat(found, ignore_index=True) if found else None
