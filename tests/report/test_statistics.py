"""Statistics by hand, and against exhaustive enumeration where that is small."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from envcoder_bench.report.statistics import (
    bootstrap,
    chances_of_best,
    holm,
    iqm,
    mean_interval,
    paired_p,
    pooled_iqm,
    probability_of_improvement,
    spearman,
    success_interval,
    t_95,
    t_tail,
    welch_interval,
)


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 10, 17, 30, 31, 63, 200, 10_000])
def test_t_95_leaves_five_percent_of_students_density(freedom):
    # integrate the density over (-t, t) with x = tan(angle), so that heavy tails are no trouble
    angle, step = np.linspace(0, math.atan(t_95(freedom)), 200_001, retstep=True)
    log_norm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    y = np.exp(log_norm - (freedom + 1) / 2 * np.log1p(np.tan(angle) ** 2 / freedom)) / np.cos(angle) ** 2
    inside = 2 * step * (y.sum() - (y[0] + y[-1]) / 2)
    assert inside == pytest.approx(0.95, abs=1e-7)


def test_students_tail_matches_tables():
    # the t of a table for one degree of freedom, two and ten
    assert t_tail(6.3138, 1) == pytest.approx(0.1, abs=1e-5)
    assert t_tail(9.9248, 2) == pytest.approx(0.01, abs=1e-6)
    assert t_tail(-2.2281, 10) == pytest.approx(0.05, abs=1e-5)
    assert t_tail(0.0, 4) == 1.0
    with pytest.raises(ValueError, match="at least two values"):
        t_95(0)


def test_mean_interval_matches_hand_computed_values():
    # 1, 2, 4: mean 7/3, variance (16 + 1 + 25) / 9 / 2 = 7/3, half width 4.3027 * sqrt(7/9)
    mean, low, high = mean_interval([1.0, 2.0, 4.0])
    assert (mean, low, high) == pytest.approx((7 / 3, 7 / 3 - 3.79460, 7 / 3 + 3.79460), abs=1e-4)
    assert mean_interval([1.0, 2.0, 4.0], (0.0, 5.0)) == (mean, 0.0, 5.0)
    assert mean_interval([2.0])[0] == 2.0 and math.isnan(mean_interval([2.0])[1])
    assert all(math.isnan(x) for x in mean_interval([]))


def test_interval_of_equal_episodes_at_a_bound_is_exact():
    # no success in 64 episodes: (1 - p)^64 = 0.025
    assert success_interval([0.0] * 64, (0.0, 1.0)) == (0.0, 0.0, pytest.approx(0.05601, abs=1e-5))
    assert success_interval([3.0] * 10, (-1.0, 3.0)) == (3.0, pytest.approx(3.0 - 4 * 0.30850, abs=1e-4), 3.0)
    for same in ([0.5] * 64, [0.0, 1.0]):
        assert success_interval(same, (0.0, 1.0)) == mean_interval(same, (0.0, 1.0))
    assert success_interval([0.0] * 64) == (0.0, 0.0, 0.0)  # without bounds nothing is known
    assert math.isnan(success_interval([0.0], (0.0, 1.0))[1])
    rng = np.random.default_rng(0)  # it covers means whose episodes are nearly always 0
    rates = rng.uniform(0.0, 0.1, 4000)
    drawn = [(p, success_interval((rng.random(64) < p).astype(float).tolist(), (0.0, 1.0))) for p in rates]
    zero = [(p, low, high) for p, (mean, low, high) in drawn if mean == 0.0]
    assert np.mean([low <= p <= high for p, low, high in zero]) > 0.95


def test_clipped_interval_keeps_its_coverage():
    rng = np.random.default_rng(0)
    samples = (rng.random((2000, 5)) < 0.9).astype(float) * rng.uniform(
        0.8, 1.0, (2000, 5)
    )  # mean 0.81, within 0 and 1
    free = [mean_interval(list(own)) for own in samples]
    cut = [mean_interval(list(own), (0.0, 1.0)) for own in samples]
    assert all(0.0 <= low <= mean <= high <= 1.0 for mean, low, high in cut)
    assert [low <= 0.81 <= high for _, low, high in free] == [low <= 0.81 <= high for _, low, high in cut]


def test_welch_interval_matches_hand_computed_values():
    # variances 1 and 4, three values each: sqrt(5/3) = 1.2910; degrees (5/3)^2 / (1/18 + 16/18) = 2.94, t(2) = 4.3027
    mean, low, high = welch_interval([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])
    assert (mean, high - mean, mean - low) == pytest.approx((3.0, 5.5547, 5.5547), abs=1e-3)
    assert math.isnan(welch_interval([1.0], [2.0, 3.0])[1])


def test_paired_p_matches_hand_computed_values():
    # differences 1, 2, 3: t = 2 / (1 / sqrt(3)) = 3.4641 with 2 degrees: p = 1 - t / sqrt(t^2 + 2) = 0.0742
    assert paired_p([1.0, 2.0, 3.0]) == pytest.approx(1 - math.sqrt(12 / 14), abs=1e-12)
    assert paired_p([0.5, 0.5]) == 0.0 and paired_p([0.0, 0.0]) == 1.0
    assert math.isnan(paired_p([0.5]))


def test_holm_matches_hand_computed_values():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    found = holm([math.nan, 0.02, 0.01])  # two comparisons
    assert math.isnan(found[0]) and found[1:] == pytest.approx([0.02, 0.02])


def test_holm_controls_the_familywise_error_rate():
    rng = np.random.default_rng(0)
    wrong = sum(min(holm(list(rng.random(20)))) < 0.05 for _ in range(4000)) / 4000
    assert 0.04 < wrong < 0.06


def test_iqm_matches_hand_computed_values():
    assert iqm([10.0, 1.0, 2.0, 3.0]) == 2.5
    assert iqm([1.0, 2.0, 3.0]) == 2.0  # a quarter of three, rounded down, is nothing
    assert iqm([0.0, 1.0, 2.0, 3.0, 4.0, 100.0]) == 2.5  # one of six is left out on each side
    assert pooled_iqm({"a": [10.0, 1.0], "b": [2.0, 3.0]}) == 2.5


def test_probability_of_improvement_matches_hand_computed_values():
    # of the nine pairs of a, six are better and one equal; of b all are better
    a, b = ([1.0, 3.0, 4.0], [0.0, 2.0, 3.0]), ([5.0], [4.0])
    first, second = {"a": a[0], "b": b[0]}, {"a": a[1], "b": b[1]}
    assert probability_of_improvement({"a": a[0]}, {"a": a[1]}) == pytest.approx(6.5 / 9)
    assert probability_of_improvement(first, second) == pytest.approx((6.5 / 9 + 1.0) / 2)
    assert probability_of_improvement(second, first) == pytest.approx(1 - (6.5 / 9 + 1.0) / 2)


def test_bootstrap_resamples_within_each_task():
    """Compared with all 256 resamples of one task; the score of the other task is never mixed in."""
    scores = {"a": [0.0, 1.0, 3.0, 9.0], "b": [100.0]}

    def mean_of_a(group):
        assert list(group["b"]) == [100.0]
        return float(np.mean(group["a"]))

    every = [np.mean(x) for x in itertools.product(scores["a"], repeat=4)]
    estimate, low, high = bootstrap(mean_of_a, scores, draws=6000)
    assert estimate == 3.25
    assert (low, high) == pytest.approx(tuple(np.percentile(every, (2.5, 97.5))), abs=0.26)
    assert min(scores["a"]) <= low and high <= max(scores["a"])


def test_paired_bootstrap_resamples_runs_together():
    """The second group is the first plus one: the paired difference is exactly one, the unpaired is not."""
    first = {"a": [0.0, 5.0, 9.0]}
    second = {"a": [x + 1 for x in first["a"]]}

    def gap(x, y):
        return float(np.mean(y["a"]) - np.mean(x["a"]))

    assert bootstrap(gap, first, second, paired=True) == pytest.approx((1.0, 1.0, 1.0))
    _, low, high = bootstrap(gap, first, second)
    assert low < -1 and high > 3


def exact_chances(table, names):
    """Enumerate all resamples of seeds and of the episodes of each."""
    seeds, episodes = len(table[0]), len(table[0][0])
    won, count = dict.fromkeys(names, 0.0), 0
    for drawn in itertools.product(range(seeds), repeat=seeds):
        for picks in itertools.product(itertools.product(range(episodes), repeat=episodes), repeat=seeds):
            means = [
                sum(own[s][e] for s, pick in zip(drawn, picks) for e in pick) / (seeds * episodes) for own in table
            ]
            best = [k for k, mean in enumerate(means) if abs(mean - max(means)) < 1e-12]
            for k in best:
                won[names[k]] += 1 / len(best)
            count += 1
    return {name: x / count for name, x in won.items()}


def test_chances_of_best_match_exhaustive_enumeration():
    table = {"a": [(1.0, 0.0), (0.5, 0.5)], "b": [(0.0, 1.0), (0.25, 0.5)], "c": [(0.25, 0.25), (0.25, 0.25)]}
    evaluation = {(name, seed): own for name, rows in table.items() for seed, own in enumerate(rows)}
    exact = exact_chances(list(table.values()), list(table))
    found = chances_of_best(evaluation, list(table), draws=20_000)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found == pytest.approx(exact, abs=0.015)


def test_chances_of_best_are_equal_for_equal_candidates_and_one_for_a_dominating_one():
    rng = np.random.default_rng(0)
    own = {("a", seed): tuple(rng.random(16)) for seed in range(3)}
    same = {**own, **{("b", seed): x for (_, seed), x in own.items()}}
    assert chances_of_best(same, ["a", "b"]) == pytest.approx({"a": 0.5, "b": 0.5})
    better = {**own, **{("b", seed): tuple(np.asarray(x) + 0.01) for (_, seed), x in own.items()}}
    # paired: b is better in every episode, although episodes differ much more
    assert chances_of_best(better, ["a", "b"]) == {"a": 0.0, "b": 1.0}


def test_chances_of_best_use_the_remaining_seeds_of_a_candidate():
    evaluation = {("a", 0): (0.5, 0.5), ("a", 1): (0.5, 0.5), ("b", 0): (0.9, 0.9)}
    found = chances_of_best(evaluation, ["a", "b"], draws=4000)
    assert found["b"] == pytest.approx(0.75, abs=0.03)  # seed 0 is among two drawn
    assert chances_of_best({}, ["a"]) == {}


def test_spearman_matches_hand_computed_values_and_pandas():
    assert spearman({"a": 1, "b": 2, "c": 3}, {"a": 10, "b": 30, "c": 20, "d": 5}) == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 40), rng.integers(0, 5, 40)
    wanted = pd.Series(x).rank().corr(pd.Series(y).rank())
    names = [str(k) for k in range(40)]
    assert spearman(dict(zip(names, x)), dict(zip(names, y))) == pytest.approx(wanted)
    assert math.isnan(spearman({"a": 1, "b": 1}, {"a": 1, "b": 2})) and math.isnan(spearman({"a": 1}, {"a": 1}))
