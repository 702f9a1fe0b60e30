"""By how much attempts are better than a baseline that met the same luck: what they are ranked by.

Every round has seeds of its own, and fitness comes and goes with them: one baseline may score 0.04 in a round and 0.25
in the next. So an attempt is compared, seed by seed, with the baseline that the run fills in from: the two share the
noise and all functions that the attempt does not replace, so that their difference is due to those that it does.

A baseline has luck of its own, too: where it does badly in a round, all of the round seem good. But the best so far is
trained again in every round. So nothing ranks above what did better with all of its seeds.
"""

from __future__ import annotations

import heapq
import math
import statistics
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

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


def beats(one: BySeed, other: BySeed) -> bool:
    """Whether the first was trained with all seeds of the other and more, and did better with those of the other."""
    if not other or len(one) <= len(other) or not other.keys() <= one.keys():
        return False
    return math.fsum(one[seed] - fitness for seed, fitness in other.items()) > 0


def in_order(worth: Mapping[str, Merit], by_seed: Mapping[str, BySeed]) -> List[str]:
    """Names by rank, the earlier first of equals, but each of them after all that ``beats`` it."""
    names = list(worth)
    several = [name for name in names if len(by_seed[name]) > 1]
    better: Dict[str, Set[str]] = {
        name: {other for other in several if beats(by_seed[other], by_seed[name])} for name in names
    }
    worse: Dict[str, List[str]] = {}
    for name, others in better.items():
        for other in others:
            worse.setdefault(other, []).append(name)
    places = {name: (not worth[name].paired, -worth[name].score, k) for k, name in enumerate(names)}
    ready = [(places[name], name) for name in names if not better[name]]
    heapq.heapify(ready)
    order: List[str] = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for other in worse.get(name, ()):
            better[other].discard(name)
            if not better[other]:
                heapq.heappush(ready, (places[other], other))
    return order


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
