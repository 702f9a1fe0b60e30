"""Statistics by hand, and against scipy where a case has a known answer; test_simulated_runs.py has their coverage."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.spread import pooled_spread
from envcoder_bench.results.statistics import (
    UNBOUNDED,
    holm,
    mean_interval,
    mean_or_nan,
    proportions,
    rate_interval,
    spearman,
    success_interval,
    t_probability,
    t_quantile,
    welch,
)


def test_quantiles_of_t_match_tabulated_values():
    freedom = np.array([1, 2, 30, 10_000])
    assert t_quantile(freedom) == pytest.approx([12.7062, 4.3027, 2.0423, 1.9602], abs=1e-4)
    assert t_probability(freedom, t_quantile(freedom)) == pytest.approx(0.975)


@pytest.mark.parametrize("values", [[], [math.inf, -math.inf], [math.nan, 1.0], [1e308, 1e308]])
def test_a_mean_that_is_not_a_number_is_nan(values):
    assert math.isnan(mean_or_nan(values))
    assert mean_or_nan([math.inf, 1.0]) == math.inf and mean_or_nan([1.0, 2.0]) == 1.5


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


def test_holm_matches_hand_computed_values():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    found = holm([math.nan, 0.02, 0.01])  # two comparisons
    assert math.isnan(found[0]) and found[1:] == pytest.approx([0.02, 0.02])


# the model of a run


def by_seed(**rows):
    return {name: dict(enumerate(values)) for name, values in rows.items()}


def test_difference_of_two_candidates_is_the_paired_t_test():
    """With nothing else in the run, the pooled spread is that of their differences."""
    first, second = [0.1, 0.5, 0.9, 0.3], [0.25, 0.61, 1.13, 0.42]
    found = FitnessModel(by_seed(a=first, b=second)).difference("b", "a")
    expected = stats.ttest_rel(second, first)
    low, high = expected.confidence_interval()
    assert (found.mean, found.p) == (pytest.approx(0.1525), pytest.approx(expected.pvalue))
    assert (found.low, found.high, found.seeds) == (pytest.approx(low), pytest.approx(high), 4)


def test_chances_of_equal_candidates_are_equal_and_those_of_others_add_to_one():
    equal = FitnessModel(by_seed(a=(0.1, 0.2, 0.3), b=(0.3, 0.1, 0.2), c=(0.2, 0.3, 0.1)))
    assert [*equal.chances.values()] == pytest.approx([1 / 3] * 3)
    first, second = FitnessModel(by_seed(a=(0.5, 0.6, 0.4), b=(0.45, 0.4, 0.62))).chances.values()
    assert first > 0.5 > second > 0.1 and first + second == pytest.approx(1.0)


def test_seeds_that_agree_leave_the_chance_of_episodes():
    """Nothing varies between seeds in the whole run, but another 128 episodes could differ by more than one."""
    episodes = {
        (name, seed): (1.0,) * successes + (0.0,) * (64 - successes)
        for name, successes in (("human", 63), ("a", 62))
        for seed in range(2)
    }
    fitness = {name: dict.fromkeys(range(2), successes / 64) for name, successes in (("human", 63), ("a", 62))}
    for bounds in ((0.0, 1.0), UNBOUNDED):
        found = FitnessModel(fitness, episodes, bounds).difference("a", "human")
        assert found.low < -1 / 64 and found.high > 0 and found.p > 0.3


def test_a_candidate_with_a_larger_spread_has_a_wider_interval():
    rng = np.random.default_rng(0)
    calm = {f"o{k}": rng.normal(0.0, 0.01, 6) for k in range(10)}
    model = FitnessModel(by_seed(wild=[0.0, 1.0, 0.2, 0.9, 0.1, 0.8], **calm))
    widths = {name: model.interval(name)[2] - model.interval(name)[1] for name in ("wild", "o0")}
    assert widths["wild"] > 2.5 * widths["o0"] > 0


def test_variances_are_pooled_over_the_candidates_whose_seeds_differ():
    found = pooled_spread(np.array([[1.0, -1.0], [1.0, -1.0], [0.0, 0.0]]), np.ones(3), 3.0)
    # 2, 2 and 0. Pooled: of the first two 2; of the third, whose seeds may be equal by luck, that of all, 4 / 3, which
    # counts three degrees of freedom beside its own: (3 x 4 / 3 + 0) / 4
    assert found.pooled == pytest.approx([2, 2, 4 / 3]) and found.variances == pytest.approx([2, 2, 1])
    assert found.degrees == pytest.approx([2, 2, 3])


def test_a_variance_far_above_the_others_is_its_own():
    deviations = np.tile([1.0, -1.0, 1.0, -1.0, 0.0], (11, 1))  # a variance of 1 with 4 degrees of freedom
    deviations[0] *= 3
    found = pooled_spread(deviations, np.full(11, 4.0), 44.0)
    assert found.variances[0] > 0.97 * 9 and found.degrees[0] == pytest.approx(4.0, abs=0.1)
    # the others: between their own 1 and the pooled (9 + 10) / 11
    assert (found.variances[1:] > 1).all() and (found.variances[1:] < 19 / 11).all()


def test_a_candidate_that_always_fails_says_nothing_of_the_spread_of_others():
    """The interval of the one whose seeds differ is Student's t over its own seeds."""
    model = FitnessModel(by_seed(alive=[0.25, 0.75], dead=[0.1, 0.1]))
    assert model.interval("alive") == pytest.approx(mean_interval([0.25, 0.75]))


def test_interval_of_successes_alone_is_that_of_clopper_and_pearson():
    """Without any failure in the run, all episodes of a candidate count as one sample."""
    ones = {(name, seed): (1.0,) * 64 for name in "ab" for seed in range(3)}
    fitness = {name: dict.fromkeys(range(3), 1.0) for name in "ab"}
    mean, low, high = FitnessModel(fitness, ones, (0.0, 1.0)).interval("a")
    exact = stats.binomtest(192, 192).proportion_ci(method="exact").low
    # wider, because six seeds may not have shown how often a seed has none
    assert (mean, high) == (1.0, 1.0) and 0.05 ** (1 / 6) - 0.05 < low < 0.05 ** (1 / 6) < exact
    without_episodes = FitnessModel(fitness, None, (0.0, 1.0), episodes=64).interval("a")
    assert without_episodes[1] == pytest.approx(low, abs=1e-3)


def test_bounds_are_those_of_the_fitness():
    model = FitnessModel(by_seed(a=[10.0, 12.0, 19.0], b=[19.5, 20.0, 19.0]), None, (10.0, 20.0))
    for name in "ab":
        mean, low, high = model.interval(name)
        assert 10.0 <= low <= mean <= high <= 20.0
    scaled = FitnessModel(by_seed(a=[0.0, 0.2, 0.9], b=[0.95, 1.0, 0.9]), None, (0.0, 1.0))
    assert [10 + 10 * x for x in scaled.interval("a")] == pytest.approx(model.interval("a"))
    own, other = model.difference("b", "a"), scaled.difference("b", "a")
    assert (own.mean, own.low, own.high, own.p) == pytest.approx(
        (10 * other.mean, 10 * other.low, 10 * other.high, other.p)
    )


def test_what_seeds_share_does_not_widen_differences():
    """All candidates of a seed meet the same commands: their fitness goes up and down together."""
    rng = np.random.default_rng(0)
    shared = 10 * rng.standard_normal(5)
    rows = {f"c{k}": shared + k + 0.1 * rng.standard_normal(5) for k in range(4)}
    model = FitnessModel(by_seed(**rows))
    found = model.difference("c3", "c0")
    assert found.high - found.low < 0.5 and found.p < 1e-4
    assert model.interval("c0")[2] - model.interval("c0")[1] > 10
    assert model.chances["c3"] > 0.95
    # candidates that always fail share nothing, and do not hide what the others share
    failing = FitnessModel(by_seed(**rows, **{f"dead{k}": [-50.0] * 5 for k in range(12)}))
    between = failing.difference("c3", "c0")
    assert between.high - between.low < 0.5
    to_failing = failing.difference("c3", "dead0")
    assert to_failing.high - to_failing.low > 10


def test_a_steady_candidate_may_be_the_best_beside_others_that_share_their_seeds():
    """Which of them is best depends on the seeds' luck, which the steady one does not share."""
    shared = np.array([0.0, 60.0, 5.0, 50.0, 10.0])
    rows = {f"c{k}": shared + own for k, own in enumerate(np.random.default_rng(0).normal(0.0, 1.0, (3, 5)))}
    model = FitnessModel(by_seed(steady=[20.0] * 5, **rows))
    assert model.difference("c0", "steady").p > 0.5 and model.chances["steady"] > 0.1
    assert "steady" in model.contenders()


def test_equal_candidates_are_equal_beside_one_that_fails():
    """As where a term that is always 0 is weighted anew; the rest of their difference is rounding."""
    for same in ([0.1, 0.5, 0.4], [0.1, 0.7, 0.4]):
        model = FitnessModel(by_seed(a=same, b=same, c=same, dead=[0.0] * 3))
        found = model.difference("a", "b")
        assert (found.mean, found.p) == (0.0, 1.0) and found.high - found.low < 1e-5
        assert set(model.contenders()) >= set("abc")


@pytest.mark.parametrize("failing", [1, 2, 5])
def test_a_difference_to_a_candidate_that_always_fails_is_no_surer_than_a_paired_t_test(failing):
    """All of its variance is that of the one whose seeds differ."""
    rng = np.random.default_rng(failing)
    for bounds in ((0.0, 1.0), UNBOUNDED):
        alive = rng.uniform(0.1, 0.7, 5)
        rows = by_seed(alive=alive, **{f"dead{k}": [0.0] * 5 for k in range(failing)})
        found = FitnessModel(rows, None, bounds, episodes=64).difference("alive", "dead0")
        low, high = stats.ttest_1samp(alive, 0.0).confidence_interval()
        ratio = (found.high - found.low) / (min(high, bounds[1]) - low)
        assert 0.99 < ratio < (1.2 if bounds == UNBOUNDED else 3)  # with bounds the dead may have had bad luck


def test_differences_without_common_seeds_are_not_paired():
    model = FitnessModel({"a": {0: 1.0, 1: 2.0, 2: 3.0}, "b": {5: 4.0, 6: 8.0}})
    found = model.difference("b", "a")
    assert (found.mean, found.seeds) == (4.0, 0) and found.low < 4.0 < found.high and not math.isnan(found.p)


def test_contenders_that_are_equally_likely_belong_together():
    rows = {f"c{k}": [1.0, 1.0] for k in range(40)}  # 38 of them have 95 % already
    assert len(FitnessModel(by_seed(**rows), None, (0.0, 1.0), episodes=64).contenders()) == 40


def test_spearman_matches_hand_computed_values_and_pandas():
    assert spearman({"a": 1, "b": 2, "c": 3}, {"a": 10, "b": 30, "c": 20, "d": 5}) == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 40), rng.integers(0, 5, 40)
    wanted = pd.Series(x).rank().corr(pd.Series(y).rank())
    names = [str(k) for k in range(40)]
    assert spearman(dict(zip(names, x)), dict(zip(names, y))) == pytest.approx(wanted)
    assert math.isnan(spearman({"a": 1, "b": 1}, {"a": 1, "b": 2})) and math.isnan(spearman({"a": 1}, {"a": 1}))


# fixed policies


def test_wilson_interval_matches_known_values():
    assert rate_interval(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert rate_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert rate_interval(10, 10)[1] == pytest.approx(1.0) and rate_interval(0, 0) == (0.0, 1.0)


def test_welch_matches_a_published_example():
    """Wikipedia, Welch's t-test, example 1: t = -2.46, degrees of freedom 25.0, p = 0.021."""
    a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
    found = welch(a, b)
    assert (found["statistic"], found["degrees_of_freedom"]) == (
        pytest.approx(-2.46, abs=0.005),
        pytest.approx(25.0, abs=0.05),
    )
    assert found["p"] == pytest.approx(0.021, abs=0.0005)
    pooled = math.sqrt(sum(sum((x - sum(s) / 15) ** 2 for x in s) for s in (a, b)) / 28)
    assert found["cohens_d"] == pytest.approx((sum(a) - sum(b)) / 15 / pooled)


def test_two_proportion_z_matches_the_formula():
    statistic, p = proportions((60, 45), (100, 100))
    z = 0.15 / math.sqrt(0.525 * 0.475 * 0.02)
    assert statistic == pytest.approx(z)
    assert p == pytest.approx(math.erfc(z / math.sqrt(2)))
