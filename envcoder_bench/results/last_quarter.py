"""Whether a training was long enough for a ranking: how well the candidates' ranks agree over its last quarter."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from envcoder_bench.results.logs import Point
from envcoder_bench.results.statistics import UNBOUNDED, mean_or_nan, spearman
from envcoder_bench.tasks.base import BASELINES

QUARTER, HALF = 0.75, 0.5  # of the training: where its last quarter begins, and the earliest evaluation taken for it
LEAST_CANDIDATES = 5  # fewer have too few ranks
ENOUGH = 0.9  # Spearman's correlation
CEILING = 0.02  # of the width of the bounds


@dataclass(frozen=True)
class LastQuarter:
    """How well the ranks of the candidates agree over the last quarter of a training.

    Attributes:
        agreement: Spearman's correlation of the candidates' mean fitness at two evaluations.
        begin, end: the iterations of these evaluations.
        candidates: their number, without baselines.
        at_ceiling: the share of them whose fitness is at its upper bound at the end.
    """

    agreement: float
    begin: int
    end: int
    candidates: int
    at_ceiling: float

    @property
    def enough(self) -> bool:
        """Whether nothing speaks against it that the ranks of a longer training agree with these."""
        return self.agreement >= ENOUGH


def last_quarter(
    points: Sequence[Point],
    complete: Collection[tuple[str, int]],
    bounds: tuple[float, float] = UNBOUNDED,
    short: int | None = None,
) -> LastQuarter | None:
    """Return how the ranks changed over the last quarter of a training; None if too little is known.

    Args:
        points: its evaluations.
        complete: the candidates and seeds whose training is complete.
        bounds: the least and the greatest fitness of an episode.
        short: control steps of an episode in all evaluations but the last one; None if they are full. The last one is
            then not compared with the others, unless its episodes are as short.
    """
    by_iteration: dict[int, dict[tuple[str, int], float]] = {}
    longest: dict[int, float] = {}
    for point in points:
        key = point.candidate, point.seed
        if key in complete and point.candidate not in BASELINES and math.isfinite(point.fitness):
            by_iteration.setdefault(point.iteration, {})[key] = point.fitness
            longest[point.iteration] = max(longest.get(point.iteration, 0.0), point.episode_length)
    if not by_iteration:
        return None
    last = max(by_iteration)
    comparable = [k for k in by_iteration if short is None or k < last or longest[k] <= short]
    end = max(comparable, default=0)
    begin = max((k for k in comparable if HALF * end <= k <= QUARTER * end), default=None)
    if begin is None:
        return None
    first, second = by_iteration[begin], by_iteration[end]
    both = first.keys() & second.keys()
    names = sorted({name for name, _ in both})
    if len(names) < LEAST_CANDIDATES:
        return None
    before, after = (
        {name: mean_or_nan([at[key] for key in sorted(both) if key[0] == name]) for name in names}
        for at in (first, second)
    )
    agreement = spearman(before, after)
    if math.isnan(agreement):
        return None
    level = bounds[1] - CEILING * (bounds[1] - bounds[0])
    at_ceiling = sum(x >= level for x in after.values()) / len(names) if math.isfinite(level) else 0.0
    return LastQuarter(agreement, begin, end, len(names), at_ceiling)
