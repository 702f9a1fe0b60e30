"""By how much attempts are better than a baseline that met the same luck: what they are ranked by.

Every round has seeds of its own, and fitness comes and goes with them: one baseline may score 0.04 in a round and 0.25
in the next. So an attempt is compared, seed by seed, with the baseline that the run fills in from: the two share the
noise and all functions that the attempt does not replace, so that their difference is due to those that it does.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Sequence, Tuple

BySeed = Mapping[int, float]


@dataclass(frozen=True)
class Merit:
    """What an attempt is worth.

    Attributes:
        differences: its fitness minus the baseline's for each seed; where there is no seed to compare, its fitness.
        paired: whether they are differences.
        score: their mean as if one seed more had come out as the median attempt's, so that one lucky seed does not
            stand above what has proved itself over several.
    """

    differences: Tuple[float, ...]
    paired: bool
    score: float

    @property
    def mean(self) -> float:
        return math.fsum(self.differences) / len(self.differences)

    @property
    def rank(self) -> Tuple[bool, float]:
        """The higher the better: what cannot be compared with a baseline comes after all that can."""
        return self.paired, self.score


def levels(baselines: Mapping[str, BySeed], reference: str) -> Dict[int, float]:
    """The fitness of the reference baseline for each seed that any baseline was trained with.

    Where it failed, another one stands in: its fitness, plus what the reference is above it where both were trained. If
    the reference was never measured, another one is the reference.
    """
    names = [name for name in sorted(baselines, key=lambda name: name != reference) if baselines[name]]
    found: Dict[int, float] = dict(baselines[names[0]]) if names else {}
    for name in names[1:]:
        other = baselines[name]
        common = [baselines[names[0]][seed] - fitness for seed, fitness in other.items() if seed in baselines[names[0]]]
        if common:
            gap = math.fsum(common) / len(common)
            for seed, fitness in other.items():
                found.setdefault(seed, fitness + gap)
    return found


def merits(measured: Mapping[str, Tuple[float, BySeed]], level: BySeed, judged: Sequence[str]) -> Dict[str, Merit]:
    """What each of ``measured`` is worth, by name.

    Args:
        measured: mean fitness, and fitness for each seed.
        level: from ``levels``.
        judged: the attempts whose median counts as one seed more of each.
    """
    found: Dict[str, Tuple[Tuple[float, ...], bool]] = {}
    for name, (fitness, by_seed) in measured.items():
        differences = tuple(x - level[seed] for seed, x in by_seed.items() if seed in level)
        found[name] = (differences, True) if differences else (tuple(by_seed.values()) or (fitness,), False)
    middle = {paired: _median([found[name] for name in judged], paired) for paired in (True, False)}
    worth: Dict[str, Merit] = {}
    for name, (differences, paired) in found.items():
        own, prior = math.fsum(differences), middle[paired]
        count = len(differences)
        score = own / count if prior is None else (own + prior) / (count + 1)
        worth[name] = Merit(differences, paired, score)
    return worth


def _median(found: Sequence[Tuple[Tuple[float, ...], bool]], paired: bool) -> Optional[float]:
    means = [math.fsum(differences) / len(differences) for differences, own in found if own == paired]
    return statistics.median(means) if means else None
