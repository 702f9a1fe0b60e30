"""The score by which attempts are ranked: their difference to a baseline, corrected for the effects of seeds.

Every round has its own seeds, and fitness depends on them: a baseline may score 0.04 in one round and 0.25 in the next.
Therefore an attempt is compared, seed by seed, with the baseline that fills in its missing functions. The two share the
noise and all functions that the attempt does not replace, so that their difference is due to the replaced functions.

The baseline's own result with a seed is random, too: if it alone does badly in a round, all attempts of that round
would seem good. The other baseline and the best so far are also trained in every round, which gives a better estimate
of the effect of its seeds.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Merit:
    """The score of an attempt.

    Attributes:
        differences: its fitness minus the baseline's level for each seed, see ``levels``; its fitness if no seed can
            be compared.
        paired: whether these are differences.
        score: their mean including one more seed with the median attempt's value, so that an attempt with one good
            seed does not rank above one that is as good over several.
    """

    differences: tuple[float, ...]
    paired: bool
    score: float

    @property
    def mean(self) -> float:
        return fmean(self.differences)

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key, higher is better: attempts that cannot be compared with a baseline come last."""
        return self.paired, self.score


def levels(anchors: Sequence[BySeed]) -> dict[int, float]:
    """Return a robust estimate of the baseline's fitness by seed.

    Each anchor gives an estimate: its fitness with that seed minus its mean difference to the baseline over the seeds
    that both have. The result is the median of the estimates; of an even number, the middle one that is nearer to the
    baseline's own fitness.

    Args:
        anchors: fitness by seed of candidates that were trained in several rounds, the baseline first. Empty ones are
            ignored; if the baseline's is empty, the next one takes its place.
    """
    trained = [anchor for anchor in anchors if anchor]
    if not trained:
        return {}
    baseline = trained[0]
    estimates: dict[int, list[float]] = {}
    for anchor in trained:
        above = [fitness - baseline[seed] for seed, fitness in anchor.items() if seed in baseline]
        for seed, fitness in anchor.items() if above else ():
            estimates.setdefault(seed, []).append(fitness - fmean(above))
    level_of: dict[int, float] = {}
    for seed, values in estimates.items():
        middle = (statistics.median_low(values), statistics.median_high(values))
        near = baseline.get(seed)
        level_of[seed] = fmean(middle) if near is None else min(middle, key=lambda x, near=near: abs(x - near))
    # so that the baseline's mean difference to itself is 0
    drift = fmean([level_of[seed] - fitness for seed, fitness in baseline.items()])
    return {seed: level - drift for seed, level in level_of.items()}


def merits(measured: Mapping[str, tuple[float, BySeed]], level: BySeed, attempts: Sequence[str]) -> dict[str, Merit]:
    """Return the merit of each of ``measured`` by name.

    Args:
        measured: mean fitness, and fitness by seed.
        level: the result of ``levels``.
        attempts: names of the attempts whose median counts as one more seed of each.
    """
    compared: dict[str, tuple[tuple[float, ...], bool]] = {}
    for name, (fitness, by_seed) in measured.items():
        differences = tuple(x - level[seed] for seed, x in by_seed.items() if seed in level)
        compared[name] = (differences, True) if differences else (tuple(by_seed.values()) or (fitness,), False)
    middle = {paired: _median([compared[name] for name in attempts], paired) for paired in (True, False)}
    result: dict[str, Merit] = {}
    for name, (differences, paired) in compared.items():
        prior, count = middle[paired], len(differences)
        score = fmean(differences) if prior is None else (math.fsum(differences) + prior) / (count + 1)
        result[name] = Merit(differences, paired, score)
    return result


def _median(compared: Sequence[tuple[tuple[float, ...], bool]], paired: bool) -> float | None:
    means = [fmean(differences) for differences, is_paired in compared if is_paired == paired]
    return statistics.median(means) if means else None
