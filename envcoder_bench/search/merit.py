"""What attempts are ranked by: how far they are above a baseline, without the luck of their seeds.

Every round has seeds of its own, and fitness comes and goes with them: one baseline may score 0.04 in a round and 0.25
in the next. So an attempt is compared, seed by seed, with the baseline that the run fills in from. The two share the
noise and all functions that the attempt does not replace, so that their difference is due to those that it does.

But a baseline has luck of its own, too: where it alone does badly in a round, everything made in that round would seem
good. The other baseline and the best so far are trained in every round as well, and say what its seeds are worth.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Mapping, Sequence

BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Merit:
    """What an attempt is worth.

    Attributes:
        differences: its fitness minus the baseline's for each seed, see ``levels``; where no seed can be compared, its
            fitness.
        paired: whether they are differences.
        score: their mean as if one seed more had come out as the median attempt's, so that one lucky seed does not
            stand above what has proved itself over several.
    """

    differences: tuple[float, ...]
    paired: bool
    score: float

    @property
    def mean(self) -> float:
        return _mean(self.differences)

    @property
    def rank(self) -> tuple[bool, float]:
        """The higher the better: what cannot be compared with a baseline comes after all that can."""
        return self.paired, self.score


def levels(anchors: Sequence[BySeed]) -> dict[int, float]:
    """What the baseline's fitness is with each seed, without the luck that it alone has.

    Each anchor says so: its fitness minus what it is above the baseline where both were trained. The median of them
    counts; of an even number the middle one that is nearer to the baseline's own fitness, so that of two it is this.

    Args:
        anchors: fitness by seed of whatever was trained in several rounds: the baseline itself first. What was never
            measured says nothing; then the next one takes its place.
    """
    known = [anchor for anchor in anchors if anchor]
    if not known:
        return {}
    baseline = known[0]
    told: dict[int, list[float]] = {}
    for anchor in known:
        above = [fitness - baseline[seed] for seed, fitness in anchor.items() if seed in baseline]
        for seed, fitness in anchor.items() if above else ():
            told.setdefault(seed, []).append(fitness - _mean(above))
    found: dict[int, float] = {}
    for seed, values in told.items():
        middle = (statistics.median_low(values), statistics.median_high(values))
        own = baseline.get(seed)
        found[seed] = _mean(middle) if own is None else min(middle, key=lambda value, own=own: abs(value - own))
    drift = _mean([found[seed] - fitness for seed, fitness in baseline.items()])  # the baseline is 0 above itself
    return {seed: level - drift for seed, level in found.items()}


def merits(measured: Mapping[str, tuple[float, BySeed]], level: BySeed, judged: Sequence[str]) -> dict[str, Merit]:
    """What each of ``measured`` is worth, by name.

    Args:
        measured: mean fitness, and fitness for each seed.
        level: from ``levels``.
        judged: the attempts whose median counts as one seed more of each.
    """
    found: dict[str, tuple[tuple[float, ...], bool]] = {}
    for name, (fitness, by_seed) in measured.items():
        differences = tuple(x - level[seed] for seed, x in by_seed.items() if seed in level)
        found[name] = (differences, True) if differences else (tuple(by_seed.values()) or (fitness,), False)
    middle = {paired: _median([found[name] for name in judged], paired) for paired in (True, False)}
    worth: dict[str, Merit] = {}
    for name, (differences, paired) in found.items():
        prior, count = middle[paired], len(differences)
        score = _mean(differences) if prior is None else (math.fsum(differences) + prior) / (count + 1)
        worth[name] = Merit(differences, paired, score)
    return worth


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _median(found: Sequence[tuple[tuple[float, ...], bool]], paired: bool) -> float | None:
    means = [_mean(differences) for differences, own in found if own == paired]
    return statistics.median(means) if means else None
