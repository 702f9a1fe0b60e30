"""The rules of a race: hand-computed decisions, and their errors over many simulated races of known truth."""

import math

import numpy as np
import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.train import rungs
from envcoder_bench.run.train.rungs import LEAST, LEVEL, TOP, decide, half_width, lower_bounds, plan_rungs

EVALUATIONS = range(5, 101, 5)


def names(stops):
    return [stop.candidate for stop in stops]


# rungs


@pytest.mark.parametrize(
    "asked, planned",
    [(None, [10, 20, 40, 70]), ([20, 60], [20, 60]), ([21, 24, 61], [25, 65]), ([98], [])],
)
def test_requested_rungs_are_moved_to_evaluations(asked, planned):
    assert plan_rungs(asked, 100, EVALUATIONS) == planned


def test_short_runs_have_few_or_no_rungs():
    assert plan_rungs(None, 1, [1]) == []
    assert plan_rungs(None, 2, [1, 2]) == []
    assert plan_rungs(None, 10, [10]) == []


def test_first_evaluation_is_no_rung_because_later_ones_are_compared_with_it():
    assert plan_rungs(None, 100, range(10, 101, 10)) == [20, 40, 70]
    assert plan_rungs([5, 50], 100, range(10, 101, 10)) == [50]


@pytest.mark.parametrize("asked", [[50, 20], [20, 20], [0, 5], [5, 100], [120], [0.3], ["x"], [True]])
def test_invalid_rungs_are_refused(asked):
    with pytest.raises(UserError, match=r"race\.rungs"):
        plan_rungs(asked, 100, EVALUATIONS)


# the interval


def test_half_width_matches_hand_computed_value():
    # share 4/20 = 0.2, growth (0.05 sqrt(0.2))^(-2/16) = 1.60812
    # sqrt(0.60812 / (1 - 0.2 * 1.60812) * 15 / 16) = 0.91676
    assert half_width(16, 0.05) == pytest.approx(0.91676, rel=1e-4)
    assert half_width(2, 0.05) == math.inf
    assert half_width(64, 0.05) < half_width(32, 0.05) < half_width(32, 0.01)


def test_lower_bounds_are_minus_infinity_without_enough_episodes():
    row = np.random.default_rng(0).normal(1.0, 0.1, 32)
    table = np.full((3, 40), np.nan)
    table[0, :32], table[2, 0] = row, 1.0
    assert lower_bounds(table, 0.05) == [
        pytest.approx(row.mean() - half_width(32, 0.05) * row.std(ddof=1)), -math.inf, -math.inf,
    ]  # fmt: skip


def test_interval_holds_simultaneously_for_all_sample_sizes():
    level, repetitions, longest = 0.1, 2000, 128
    x = np.random.default_rng(1).normal(size=(repetitions, longest))
    n = np.arange(1, longest + 1)
    means = x.cumsum(axis=1) / n
    deviations = np.sqrt(np.maximum((x**2).cumsum(axis=1) / n - means**2, 0) * n / np.maximum(n - 1, 1))
    widths = np.array([half_width(k, level) if k > 1 else math.inf for k in n])
    missed = (np.abs(means[:, 1:]) > widths[1:] * deviations[:, 1:]).any(axis=1).mean()
    assert 0.01 < missed <= level


# decisions by hand


def evaluation(means, episodes=16, spread=0.0, seeds=(0,)):
    wave = [spread * (-1) ** k for k in range(episodes)]
    return {(name, seed): tuple(mean + x for x in wave) for name, mean in means.items() for seed in seeds}


BEFORE = evaluation(dict.fromkeys("abcdefg", 0.1))


@pytest.fixture
def reach(monkeypatch):
    """Set how fast a candidate may still learn."""
    return lambda value: monkeypatch.setattr(rungs, "REACH", value)


def test_best_share_goes_on_and_at_least_three():
    history = {
        10: evaluation(dict.fromkeys("abcdefg", -1.0)),
        20: evaluation({"a": 0.1, "b": 0.7, "c": 0.3, "d": 0.7, "e": 0.2, "f": 0.6, "g": 0.0}),
    }
    stops = decide(0.5, history, list("abcdefg"), 100, 3)
    assert [(s.candidate, s.rank) for s in stops] == [("e", 5), ("a", 6), ("g", 7)]
    assert stops[0].reason == "beyond the best 4 of 7"
    assert names(decide(0.5, history, list("bcde"), 100, 3)) == ["e"]
    assert decide(0.5, history, list("bcd"), 100, 3) == []
    assert names(decide(0.1, history, list("abcdefg"), 100, 3)) == ["c", "e", "a", "g"]


def test_share_is_stopped_after_the_third_best_has_significantly_improved(reach):
    before = evaluation({name: 0.1 for name in "abcdefgh"}, spread=0.08)  # standard error 0.02
    means = {"a": 0.3, "b": 0.2, "d": 0.12, "e": 0.11, "f": 0.1, "g": 0.1, "h": 0.1}
    waits = evaluation({**means, "c": 0.15}, spread=0.08)
    halves = evaluation({**means, "c": 0.17}, spread=0.08)  # 0.07 beyond: more than 2 * sqrt(2) * 0.0207
    reach(100.0)
    assert decide(0.5, {10: before, 50: waits}, list("abcdefgh"), 90, 1) == []
    assert names(decide(0.5, {10: before, 50: halves}, list("abcdefgh"), 90, 1)) == ["e", "f", "g", "h"]
    assert decide(1.0, {10: before, 50: halves}, list("abcdefgh"), 90, 1) == []


def test_no_share_is_stopped_with_fewer_than_three_finite_initial_fitness_values(reach):
    before = evaluation({"a": 0.1, "b": 0.1, **dict.fromkeys("cde", math.nan)})
    now = evaluation(dict(zip("abcde", (0.9, 0.8, 0.7, 0.6, 0.5))))
    reach(100.0)
    assert decide(0.5, {10: before, 50: now}, list("abcde"), 90, 1) == []


def test_candidates_within_reach_of_the_third_best_continue(reach):
    # the third best gained 0.5 in 40 iterations; at a quarter of that pace it would gain 0.125 in the other 40
    now = evaluation({"a": 0.8, "b": 0.7, "c": 0.6, "d": 0.48, "e": 0.47, "f": 0.0})
    stops = decide(1.0, {10: BEFORE, 50: now}, list("abcdef"), 90, 1)
    assert names(stops) == ["e", "f"]
    assert stops[0].reason == "0.13 behind the third best, surely 0.13; within reach: 0.125"
    assert (stops[1].fitness, stops[1].rank) == (0.0, 6)
    reach(2.0)
    assert names(decide(1.0, {10: BEFORE, 50: now}, list("abcdef"), 90, 1)) == []
    reach(0.0)
    assert names(decide(1.0, {10: BEFORE, 50: now}, list("abcdef"), 90, 1)) == ["d", "e", "f"]


def test_no_candidate_is_stopped_before_any_has_improved():
    now = evaluation({"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.0, "e": 0.0})
    assert decide(1.0, {10: BEFORE, 50: now}, list("abcde"), 90, 1) == []
    assert decide(1.0, {50: evaluation(dict(zip("abcde", (5, 4, 3, 2, 1))))}, list("abcde"), 90, 1) == []


def test_differences_are_paired(reach):
    """Initial states vary much, and are equal for every candidate."""
    reach(0.0)
    hard = np.linspace(0.0, 0.6, 16)
    now = {(name, 0): tuple(gain + hard) for name, gain in (("a", 0.4), ("b", 0.39), ("c", 0.38), ("d", 0.3))}
    assert names(decide(1.0, {10: BEFORE, 50: now}, list("abcd"), 90, 1)) == ["d"]
    shuffled = {**now, ("d", 0): tuple(0.3 + np.random.default_rng(0).permutation(hard))}
    assert decide(1.0, {10: BEFORE, 50: shuffled}, list("abcd"), 90, 1) == []


def test_failed_seeds_and_baselines_are_excluded_from_decisions():
    means = {"human": 9.0, "a": 0.8, "b": 0.7, "c": 0.6, "d": 0.1}
    now = evaluation(means, seeds=(0, 1))
    del now["d", 1]
    stops = decide(1.0, {10: BEFORE, 50: now}, list("abcd"), 90, 1)
    assert names(stops) == ["d"] and stops[0].rank == 4
    assert decide(1.0, {10: BEFORE, 50: now}, list("abc"), 90, 1) == []
    assert LEAST == TOP + 1 == 4


# over many races


@pytest.mark.parametrize("noise", ["normal", "ends early"])
def test_best_three_are_stopped_at_most_at_the_level(noise, reach):
    reach(0.0)
    rng, races = np.random.default_rng(2), 150
    candidates = [f"c{k}" for k in range(10)]
    truth = dict(zip(candidates, [0.70, 0.70, 0.70, 0.699, 0.69, 0.68, 0.6, 0.5, 0.3, 0.2]))
    wrong, late = 0, 0
    for _ in range(races):
        history, alive = {5: evaluation(dict.fromkeys(candidates, 0.05))}, list(candidates)
        for rung in (30, 50, 70):
            hard = rng.normal(0.0, 0.1, 16)
            history[rung] = {}
            for name in alive:
                if noise == "normal":
                    episodes = truth[name] + hard + rng.normal(0.0, 0.1, 16)
                else:
                    episodes = np.where(rng.random(16) < truth[name], 1.0, 0.05)
                history[rung][name, 0] = tuple(episodes)
            for stop in decide(1.0, history, alive, 100, 3):
                alive.remove(stop.candidate)
        wrong += any(name not in alive for name in candidates[:TOP])
        late += "c9" in alive
    assert wrong / races <= LEVEL
    assert late / races <= (0.0 if noise == "normal" else 0.9)
