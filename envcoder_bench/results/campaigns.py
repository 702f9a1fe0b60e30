"""The tests of a campaign, which ranks many candidates one after another, and some again with further seeds.

The seeds of a candidate's rankings are pooled, so that evidence accumulates. Which candidates are ranked again depends
on what their tests said, so that the level of all tests of a candidate is bounded: each new candidate has a share of
5 %, of which n seeds spend n / (n + HALF) (an error-spending function, Lan and DeMets, 1983). So the probability that
any of a campaign's tests is false is at most 5 %, however many there are and whichever are repeated.
"""

from typing import Any

import numpy as np

from envcoder_bench.results.fitness_model import Difference, FitnessModel
from envcoder_bench.results.pairs import MOST_SEEDS, Pair, campaign_pair, least_effect
from envcoder_bench.results.statistics import LEVEL

FIRST = 0.8  # share of the level for the first ``every`` candidates; the others have halves of the rest
HALF = 6.0  # seeds that spend half of a candidate's level


def candidate_level(order: int, every: int) -> float:
    """Return the level of all tests of a candidate together.

    Args:
        order: number of other candidates before it.
        every: number of candidates that share the first levels.
    """
    block = order // every
    return LEVEL * (FIRST if block == 0 else (1 - FIRST) * 0.5**block) / every


def spent(seeds: Any) -> Any:
    """Return the share of its level that a candidate has spent after so many seeds, a number or an array."""
    return seeds / (seeds + HALF)


def pooled_pair(model: FitnessModel, first: str, second: str, level: float, new: int, seeds: int) -> Pair:
    """Return a candidate compared with another one by all seeds that they share.

    Args:
        model: of all rankings that have both.
        level: of ``first``, see ``candidate_level``.
        new: number of seeds that this test adds.
        seeds: number of all its seeds so far, those of rankings without ``second`` included.
    """
    test = level * (spent(seeds) - spent(seeds - new))
    return campaign_pair(model, first, second, test, _later(level, seeds, model.difference(first, second).seeds))


def detectable(difference: Difference, level: float, seeds: int) -> float:
    """Return the least difference of a new candidate that so many seeds tell, see ``pairs.least_effect``."""
    return least_effect(difference, seeds, _later(level, 0, 0))


def _later(level: float, seeds: int, pooled: int) -> np.ndarray:
    """Return the levels of the next test, with 2, 3 ... MOST_SEEDS pooled seeds; 0 with no more than now."""
    further = np.maximum(np.arange(2, MOST_SEEDS + 1) - pooled, 0)
    return level * (spent(seeds + further) - spent(seeds))
