"""The tests of a campaign: all of them together err with 5 %, and seeds of repeated rankings count together."""

import numpy as np
import pytest

from envcoder_bench.results.campaigns import candidate_level, detectable, pooled_pair, spent
from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.pairs import BETTER, CANNOT_TELL, least_effect
from envcoder_bench.results.statistics import LEVEL


def model(seeds, gap=0.1):
    values = np.random.default_rng(2).normal(0.0, 0.05, (4, 40))[:, :seeds] + [[0.0], [gap], [0.0], [0.0]]
    return FitnessModel({name: dict(enumerate(row)) for name, row in zip(("human", "a", "b", "c"), values)})


@pytest.mark.parametrize("every", [1, 18])
def test_the_levels_of_all_candidates_are_five_percent(every):
    levels = [candidate_level(order, every) for order in range(60 * every)]
    assert sum(levels) == pytest.approx(LEVEL) and levels == sorted(levels, reverse=True)
    assert sum(levels[:every]) == pytest.approx(0.8 * LEVEL)


@pytest.mark.parametrize("seeds", [(40,), (3, 37), (3, 5, 2, 20, 10)])
def test_all_tests_of_a_candidate_have_its_level(seeds):
    """However its seeds are divided, it has spent the same."""
    factors = []
    for new, so_far in zip(seeds, np.cumsum(seeds)):
        pair = pooled_pair(model(int(so_far), 5.0), "a", "human", 0.01, new, int(so_far))
        factors.append(LEVEL * pair.p / pair.corrected)
    assert sum(factors) == pytest.approx(0.01 * spent(40))


def test_more_seeds_are_asked_for_that_tell():
    """What was not told with 3 seeds is told with as many as were said, in a ranking that repeats the candidate."""
    first = pooled_pair(model(3), "a", "human", candidate_level(0, 18), 3, 3)
    assert first.verdict == CANNOT_TELL and 3 < first.seeds_needed < 40
    total = first.seeds_needed + 5
    again = pooled_pair(model(total), "a", "human", candidate_level(0, 18), total - 3, total)
    assert again.verdict == BETTER and again.seeds == total


def test_what_a_new_candidate_must_gain_falls_with_its_seeds():
    difference, level = model(3).difference("a", "human"), candidate_level(0, 18)
    least = [detectable(difference, level, seeds) for seeds in (3, 5, 10, 50)]
    assert least == sorted(least, reverse=True) and least[0] > least_effect(difference, 3, LEVEL)
