"""A pair's numbers are those of the model, its verdict that of the ranking's marks, and so many seeds do tell."""

import math

import numpy as np
import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.results.fitness_model import Difference, FitnessModel, least_error
from envcoder_bench.results.pairs import (
    BETTER,
    CANNOT_TELL,
    POWER,
    WORSE,
    advice,
    campaign_pair,
    least_effect,
    run_pairs,
    seeds_needed,
    sentence,
)
from envcoder_bench.results.ranking import fitness_model, rank
from envcoder_bench.results.rows import FAILED, Result
from envcoder_bench.results.statistics import corrected
from envcoder_bench.shaping.contract import Fault

MEANS = {"human": 0.5, "a": 0.9, "b": 0.86, "c": 0.2}


def rows_of(means=MEANS, seeds=5, spread=0.05):
    random = np.random.default_rng(1)
    return [
        Result(name, seed, "ok", mean + spread * x, episodes=64, env_steps=10)
        for name, mean in means.items()
        for seed, x in enumerate(random.normal(size=seeds))
    ]


def compared(rows):
    ranked = rank(rows)
    return run_pairs(fitness_model(rows), ranked), ranked


def test_a_pair_has_the_numbers_of_the_model():
    rows = rows_of()
    pairs, _ = compared(rows)
    model = fitness_model(rows)
    for first in MEANS:
        for second in MEANS:
            if first == second:
                continue
            pair, expected = pairs.of(first, second), model.difference(first, second)
            assert (pair.mean, pair.low, pair.high, pair.p) == pytest.approx(
                (expected.mean, expected.low, expected.high, expected.p)
            )
            other = pairs.of(second, first)
            assert (other.mean, other.low, other.high) == pytest.approx((-pair.mean, -pair.high, -pair.low))
            assert {pair.verdict, other.verdict} in ({BETTER, WORSE}, {CANNOT_TELL})


def test_verdicts_agree_with_the_marks_and_letters_of_the_ranking():
    marked = 0
    for spread in (0.02, 0.1, 0.3):
        pairs, ranked = compared(rows_of(spread=spread))
        for row in ranked:
            for other in ranked:
                if row is other:
                    continue
                pair = pairs.of(row.candidate, other.candidate)
                if other.candidate == "human":
                    assert pair.corrected == pytest.approx(row.vs_human_p) and pair.tests == 3
                    assert (pair.verdict != CANNOT_TELL) == row.significant
                elif row.candidate != "human":
                    assert pair.tests == 6
                    assert (pair.verdict == CANNOT_TELL) == bool({*row.tie_groups} & {*other.tie_groups})
                    marked += pair.verdict != CANNOT_TELL
    assert marked


def test_corrected_p_values_are_those_of_all_pairs():
    pairs, _ = compared(rows_of(spread=0.2))
    names = [(a, b) for k, a in enumerate("abc") for b in "abc"[k + 1 :]] + [("human", name) for name in "abc"]
    every = corrected([pairs.of(*name).p for name in names])
    for (first, second), expected in zip(names, every):
        if first != "human":
            assert pairs.of(first, second).corrected == pytest.approx(expected)


def test_so_many_seeds_tell_a_difference_in_eight_of_ten_runs():
    """Against simulated runs: with the number of seeds that a long run asks for, POWER of the new runs tell it."""
    random, effect, told = np.random.default_rng(0), 0.1, []

    def run(seeds):
        values = {"x": random.normal(effect, 0.1, seeds), "y": random.normal(0.0, 0.1, seeds)}
        model = FitnessModel({name: dict(enumerate(map(float, of))) for name, of in values.items()})
        return model.difference("x", "y")

    needed = seeds_needed(run(200), effect)
    assert 14 <= needed <= 22  # of two means with a deviation of 0.1 each: 17 by the tables of Cohen (1988), d = 1
    told = [run(needed).p < 0.05 for _ in range(400)]
    assert np.mean(told) == pytest.approx(POWER, abs=0.08)


def test_seeds_follow_the_effect_and_the_level():
    known = Difference(0.1, -0.1, 0.3, 0.2, 5, error=0.07, freedom=8.0)
    numbers = [seeds_needed(known, effect) for effect in (0.4, 0.2, 0.1, 0.05)]
    assert numbers == sorted(numbers) and numbers[0] < numbers[-1]
    assert seeds_needed(known, 0.1, 0.01) > seeds_needed(known, 0.1) == seeds_needed(known, -0.1)
    # outcomes that were not seen are fewer with more seeds
    unsure = Difference(0.1, -0.1, 0.3, 0.2, 5, error=0.07, freedom=8.0, unseen=0.3, worth=5.0)
    assert all(seeds_needed(unsure, x) > seeds_needed(known, x) for x in (0.4, 0.2, 0.1))
    assert seeds_needed(known, 0.0) is None and seeds_needed(Difference(0.1), 0.1) is None


@pytest.mark.parametrize("error", [0.03, 0.1, 0.4])
def test_the_least_effect_is_told_in_four_of_five_runs(error):
    unsure = Difference(0.1, -0.1, 0.3, 0.2, 5, error=error, freedom=1e6, unseen=0.2, worth=5.0)
    means = least_effect(unsure, 5) + error * np.random.default_rng(0).normal(size=20_000)
    told = least_error(means, np.array(unsure.unseen)) > 1.96 * error
    assert told.mean() == pytest.approx(POWER, abs=0.01)


def test_what_cannot_be_compared_says_why():
    rows = rows_of()
    rows += [Result("untrained", seed, "ok", 0.01, episodes=64) for seed in range(5)]
    rows += [Result("broken", seed, FAILED, fault=Fault("x")) for seed in range(5)]
    rows += [Result("raced", seed, "stopped", 0.3, episodes=64, stopped_at=7) for seed in range(5)]
    pairs, _ = compared(rows)
    for name, words in (
        ("untrained", "untrained is the policy before training"),
        ("broken", "broken has no fitness"),
        ("raced", "raced was stopped by the race at iteration 7"),
    ):
        pair = pairs.of("a", name)
        assert pair.verdict == CANNOT_TELL and math.isnan(pair.mean)
        assert sentence(pair) == f"a against {name}: cannot tell; {words}" and advice(pair) == ""
    with pytest.raises(UserError, match=r"no candidate .raced2.*raced"):
        pairs.named("a", "raced2")
    with pytest.raises(UserError, match="a is given twice"):
        pairs.named("a", "a")


def test_sentences_have_interval_p_and_the_seeds_that_would_tell():
    pairs, _ = compared(rows_of())
    assert sentence(pairs.of("a", "c")).startswith("a is better than c: +0.")
    assert sentence(pairs.of("c", "a")).startswith("c is worse than a: -0.")
    near = compared(rows_of(spread=0.1))[0].of("a", "b")
    assert near.verdict == CANNOT_TELL and near.seeds_needed > 5
    assert "a against b: cannot tell; difference " in str(near) and " over 5 seeds" in str(near)
    assert " (corrected for 6 tests and all looks: p = " in str(near)
    assert f": eval-shapers --extend runs/x --seeds {near.seeds_needed}, a further look" in advice(near, "runs/x")
    assert advice(pairs.of("a", "c")) == ""
    single, _ = compared(rows_of(seeds=1))
    assert "one seed does not say how much seeds differ" in str(single.of("a", "b"))
    assert advice(single.of("a", "b"), "R") == "eval-shapers --extend R --seeds 3"
    raced = [Result("c", 0, "stopped", 0.2, episodes=64, stopped_at=7)]  # a race cannot be extended
    near = compared([row for row in rows_of(spread=0.1) if row.candidate != "c"] + raced)[0].of("a", "b")
    assert advice(near, "R").endswith(f": a new run with --seeds {near.seeds_needed}")


@pytest.mark.parametrize("seeds", [3, 10, 200])
def test_the_least_effect_is_what_so_many_seeds_tell(seeds):
    model = fitness_model(rows_of())
    difference = model.difference("a", "b")
    least = least_effect(difference, seeds, 0.01)
    assert seeds_needed(difference, 1.001 * least, 0.01) <= seeds < seeds_needed(difference, 0.98 * least, 0.01)
    assert math.isnan(least_effect(Difference(0.1), seeds))


def test_a_pair_of_a_campaign_is_tested_at_its_level():
    model = fitness_model(rows_of())
    alone, many = (campaign_pair(model, "a", "human", level) for level in (0.05, 0.05 / 18))
    assert many.corrected == pytest.approx(18 * alone.corrected) and alone.corrected == pytest.approx(alone.p)
    assert (alone.mean, alone.low, alone.p) == (many.mean, many.low, many.p)
    assert many.tests == 18 and not many.extends
