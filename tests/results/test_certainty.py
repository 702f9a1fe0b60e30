"""What a run says of designs that broke its statistics: few simulated runs of each, and exact cases.

The limits are those of the definitions, with three standard errors; ``measure.py designs`` takes more runs.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from certainty_designs import (
    DIFFERENT,
    EQUAL,
    RATE,
    different_family,
    equal_family,
    extended_family,
    model,
)
from scipy.special import stdtrit

from envcoder_bench.report.certainty import unseen
from envcoder_bench.results.fitness_model import (
    OWN,
    FitnessModel,
    farthest,
    least_error,
    likely_share,
    spread_grows,
)
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import Result
from envcoder_bench.results.spread import seed_variances
from envcoder_bench.results.statistics import LEVEL, UNBOUNDED, corrected, look_level
from envcoder_bench.run.folder.ranked import looks_at


def beyond(share, runs):
    return share + 3 * math.sqrt(share * (1 - share) / runs)


def by_seed(**rows):
    return {name: dict(enumerate(values)) for name, values in rows.items()}


# outcomes that the seeds have not shown


@pytest.mark.parametrize("seeds", [2, 3, 5, 8, 12])
def test_seeds_that_all_learn_may_be_luck(seeds):
    """A candidate has 0.9 or 0, human always what it has on average. All seeds learn with a probability of over 5 %."""
    share = LEVEL ** (1 / seeds) + 0.02
    fitness = np.array([[0.9 * share] * seeds, [0.9] * seeds])
    found = model(fitness, RATE).difference("c000", "human")
    assert found.p > LEVEL and found.low < 0 < found.high
    worse = model(1 - fitness, RATE).difference("c000", "human")
    assert worse.p == pytest.approx(found.p) and worse.low == pytest.approx(-found.high)


def test_enough_seeds_that_all_learn_are_not_luck():
    fitness = np.array([[0.45] * 8, [0.9] * 8])
    found = model(fitness, RATE).difference("c000", "human")
    assert found.p < LEVEL and found.low > 0


@pytest.mark.parametrize("candidates", [1, 2])
@pytest.mark.parametrize(
    ("name", "seeds"), [(f"learns or not, {p}", n) for p in ("0.5", "0.7, untrained known") for n in (3, 5)]
)
def test_candidates_whose_seeds_learn_or_not_are_not_marked(name, seeds, candidates):
    found = equal_family(name, candidates, seeds, 100)
    assert found["marked"] <= beyond(0.05, 100) and found["better"] <= beyond(0.05, 100)


def test_without_bounds_a_seed_may_fail_as_the_untrained_policy_does():
    """As with bounds from the untrained policy to the best of the run."""
    fitness = np.array([[0.63] * 3, [0.9] * 3]) + 0.001 * np.array([[0, 1, 2], [1, 2, 0]])
    p, with_failures = (model(fitness, UNBOUNDED, x).difference("c000", "human").p for x in (math.nan, 0.0))
    assert p < 1e-4 and with_failures > LEVEL
    low, high = model(fitness, UNBOUNDED, 0.0).interval("c000")[1:]
    assert low < 0.63 and high == pytest.approx(0.901, abs=0.01)  # nothing in the run is better
    means = {"human": 5.0, "a": 9.0, "untrained": 0.0}
    rows = [Result(name, seed, "ok", mean + 0.01 * seed) for name, mean in means.items() for seed in (0, 1)]
    shown = {row.candidate: row for row in rank(rows)}
    assert shown["a"].vs_human_ci_low < 0 and 0.4 < shown["a"].unseen < 1 - 0.05**0.5
    assert {row.candidate: row for row in rank(rows[:4])}["a"].vs_human_ci_low > 0


def test_an_error_and_unseen_outcomes_explain_less_together_than_if_each_were_certain():
    error, unseen = np.meshgrid(np.linspace(0.0, 0.4, 9), np.linspace(0.0, 0.4, 9))
    together = farthest(error, unseen)
    assert (together >= np.maximum(error, unseen) - 1e-12).all() and (together <= np.hypot(error, unseen) + 1e-12).all()
    assert (least_error(together, unseen) == pytest.approx(error)) and (least_error(0.99 * unseen, unseen) == 0.0).all()
    # the greatest sum, where the shares of the two add up to 1
    shares = np.linspace(0.0, 1.0, 2001)[:, None, None]
    assert together == pytest.approx((unseen * shares + error * np.sqrt(1.0 - shares)).max(axis=0), abs=1e-6)


def test_share_that_was_not_seen_is_that_of_clopper_and_pearson():
    run = model(np.array([[0.1] * 5, [0.9] * 5]), RATE)  # unlike each other
    assert run.unseen("c000") == pytest.approx(1 - 0.05**0.2, abs=1e-4)
    assert model(np.full((13, 5), 0.5), RATE).unseen("human") == pytest.approx(1 - 0.05 ** (1 / 65), abs=1e-4)
    assert math.isnan(model(np.full((2, 5), 0.5), UNBOUNDED).unseen("human"))


def test_interval_of_a_fitness_allows_for_rare_failures():
    assert equal_family("rare failures", 3, 3, 60)["covered"] >= 0.93


def test_notes_say_what_the_seeds_do_not_show():
    def notes(candidates, seeds, bounds):
        rng = np.random.default_rng(0)
        names = ["human", *(f"c{k}" for k in range(candidates))]
        return unseen(rank([Result(x, s, "ok", rng.uniform(0.4, 0.6)) for x in names for s in range(seeds)], bounds))

    (few,) = notes(1, 5, RATE)
    assert few.startswith("5 seeds may not have shown an outcome that up to 31 % of seeds have") and "alike" in few
    (many,) = notes(12, 5, RATE)
    assert "up to 21 %" in many and "as far as the candidates are alike in this; if" in many
    (unbounded, groups) = notes(3, 2, UNBOUNDED)
    assert "the fitness has no bounds and the run no" in unbounded and groups.endswith(
        "candidates' seeds move together"
    )
    assert len(notes(3, 2, RATE)) == 2 and len(notes(3, 3, RATE)) == len(notes(1, 2, UNBOUNDED)) == 1
    assert notes(3, 1, RATE) == []


# small families


@pytest.mark.parametrize(
    ("name", "candidates", "seeds"),
    [
        ("equal means by different ways", 3, 3), ("equal means by different ways", 12, 5),
        ("mutants", 3, 2), ("mutants", 3, 5), ("two groups with effects of seeds", 3, 2),
        ("one learns or not, 0.7", 12, 3), ("human learns or not, 0.7", 12, 3),
    ],
)  # fmt: skip
def test_unlike_candidates_are_not_marked(name, candidates, seeds):
    assert equal_family(name, candidates, seeds, 100)["marked"] <= beyond(0.05, 100)


def test_a_candidate_that_is_unlike_all_others_has_but_its_own_seeds():
    steady, far = [0.4, 0.41, 0.42], [0.9, 0.91, 0.92]
    runs = [model(np.array([steady, far, other, steady]), RATE) for other in (steady, far, [0.9, 0.91, 0.42])]
    alone, alike, partly = (run.difference("c000", "human") for run in runs)
    assert alone.worth == partly.worth == 3 and alike.worth == 6 and alone.p == partly.p == 1.0 > alike.p
    assert runs[0].unseen("c000") > runs[1].unseen("c000") > runs[1].unseen("human")
    back = runs[1].difference("human", "c000")
    assert (back.p, back.low) == pytest.approx((alike.p, -alike.high))


def test_candidates_that_fell_with_some_seeds_speak_for_a_fall_of_those_that_did_not():
    """Of 40 like the first, 30 have a seed at 0; the 10 others alone would say that at most 10 % of seeds fall."""
    steady, learnt, fallen = [0.49, 0.5, 0.51], [1.0] * 3, [1.0, 1.0, 0.0]
    runs = [model(np.array([steady] * 5 + [learnt] * 10 + others), RATE) for others in ([fallen] * 30, [steady] * 30)]
    mixed, clear = (run.difference(run.names[5], "human") for run in runs)
    assert clear.p < 0.01 and mixed.p > LEVEL and mixed.low < 0 < clear.low
    # 30 of 120 seeds fall; 60 of 105 rise, of those that are as low as human with a seed
    shares = likely_share(np.array([30, 60, 0]), np.array([120, 105, 9]))
    assert shares == pytest.approx([30.667 / 120.333, 60.667 / 105.333, 0.0], rel=1e-4)
    assert mixed.unseen == pytest.approx(math.hypot(shares[0], 0.5 * shares[1]), rel=0.01)


def test_values_that_are_often_the_greatest_are_not_taken_for_a_bound():
    """Fitness is rounded: all seeds have 5, and one in four more would have 6."""
    fitness = np.array([[5.0, 5.0, 5.0], [5.0, 5.0, 5.0], [4.0, 5.0, 5.0]])
    run = model(fitness, UNBOUNDED, 0.0)
    assert min(run.interval(name)[2] for name in run.names) > 5.25
    assert min(high for _, _, high in run.expected.values()) > 5.25
    # a declared bound cuts them
    assert max(high for _, _, high in model(fitness, (0.0, 5.0)).expected.values()) == 5.0


def test_interval_of_a_difference_and_its_test_agree():
    rng = np.random.default_rng(0)
    for seeds in (2, 3, 5):
        for fitness in (rng.uniform(0.0, 1.0, (13, 1)) + rng.uniform(-0.03, 0.03, (13, seeds)) for _ in range(10)):
            run = model(fitness.clip(0.0, 1.0), RATE)
            for found in run.differences("human", run.names[1:]):
                assert (found.p < LEVEL) == (found.low > 0 or found.high < 0)


def test_candidates_that_share_their_seeds_in_groups_count_as_fewer():
    """Two groups, each with effects of seeds of its own: they are as two candidates."""
    rng = np.random.default_rng(0)
    groups = rng.standard_normal((2, 5))
    run = model(groups[np.arange(12) % 2] + 0.01 * rng.standard_normal((12, 5)), UNBOUNDED)
    alike = model(rng.standard_normal((12, 5)), UNBOUNDED)
    assert run._shared is not None and alike._shared is not None
    assert run._shared.degrees.max() < 8 < alike._shared.degrees.max()


def test_differences_between_groups_of_seeds_have_their_whole_error():
    """The mean of two groups takes half of the variance of each; differences had 0.7 of their error."""
    groups = np.random.default_rng(0).standard_normal((2, 12))
    fitness = groups[np.arange(12) % 2] + 0.01 * np.random.default_rng(1).standard_normal((12, 12))
    error = model(fitness, UNBOUNDED).difference("human", "c000").error
    assert error == pytest.approx((groups[0] - groups[1]).std(ddof=1) / math.sqrt(12), rel=0.1)


def test_equal_differences_of_counts_may_be_luck():
    """Of two Poisson numbers with the mean 2, two differences are equal in 10 % of the runs."""
    counts = model(np.array([[1.0, 3.0], [3.0, 5.0]]), UNBOUNDED).difference("c000", "human")
    assert counts.p > LEVEL and counts.low < 0 < counts.high
    # other candidates may have values that are not rounded
    beside = model(np.array([[1.0, 3.0], [3.0, 5.0], [2.5, 2.50001]]), UNBOUNDED).difference("c000", "human")
    assert beside.error**2 >= 2.0**2 / 6 / 2


@pytest.mark.parametrize("others", [[], [20.001]])
def test_where_no_seeds_differ_nothing_is_known_of_chance(others):
    found = model(np.array([[mean] * 5 for mean in (10.0, 20.0, *others)]), UNBOUNDED).difference("c000", "human")
    assert found.mean == 10.0 and all(math.isnan(x) for x in (found.p, found.low, found.high, found.error))


# the first place


DOMINATED = by_seed(
    human=[1.0, 1.0], unshaped=[0.9997, 0.860], r0=[0.2, 0.31], r1=[0.70, 0.48], r2=[0.1, 0.12],
    r3=[0.05, 0.3], r4=[0.4, 0.33], r5=[0.61, 0.40], r6=[0.9, 0.11], r7=[0.82, 0.41],
)  # fmt: skip


def test_what_is_dominated_in_every_seed_is_not_the_likeliest():
    run = FitnessModel(DOMINATED, None, RATE, episodes=64)
    assert max(run.chances, key=lambda name: run.chances[name]) == "human"
    assert run.chances["human"] >= run.chances["unshaped"] > run.chances["r1"] > run.chances["r5"]
    assert all(0.0 <= low <= mean <= high <= 1.0 for mean, low, high in run.expected.values())


def test_contenders_of_equal_spread_are_those_with_the_highest_means():
    rng = np.random.default_rng(0)
    for _ in range(20):
        fitness = rng.uniform(0.1, 0.9, (12, 1)) + np.array([-0.05, 0.05])
        for bounds in (RATE, UNBOUNDED):
            run = model(fitness, bounds)
            order = np.argsort(-fitness.mean(axis=1))
            chances = [run.chances[run.names[k]] for k in order]
            assert (np.diff(chances) < 1e-9).all()
            contenders = run.contenders()
            assert set(contenders) == {run.names[k] for k in order[: len(contenders)]}


def test_those_who_are_no_contenders_have_together_little_of_the_likeliest():
    """Among 250, of which 100 are alike, contenders with 97 % held the best in 80 % of the runs."""
    for spread in (0.002, 0.3):
        truth = 0.5 + spread * np.random.default_rng(0).uniform(-1.0, 1.0, 60)
        run = model(truth[:, None] + 0.1 * np.random.default_rng(1).standard_normal((60, 3)), UNBOUNDED)
        rest = set(run.chances) - set(run.contenders())
        left_out = sum(run.chances[name] for name in rest)
        assert left_out <= min(0.03, 0.05 * max(run.chances.values())) + 1e-9
        assert len(rest) > 20 or spread < 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "candidates"),
    [("cluster of equal good ones", 12), ("cluster of good ones", 12)],
)
def test_the_first_of_a_cluster_is_not_taken_for_the_best(name, candidates):
    runs = 120
    found = different_family(name, candidates, 5, runs)
    assert found["alone"] - found["right"] <= 0.05 * runs + 2 * math.sqrt(0.05 * 0.95 * runs)
    assert found["held"] >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / runs)


# new seeds


def test_luck_of_the_first_is_not_expected_of_new_seeds():
    found = different_family("normal, spread 0.3", 12, 3, 60)
    assert found["lucky"] > 0.6 and abs(found["expected"]) < 0.3 and found["covered"] >= 0.93 - 0.05


def test_where_the_spread_of_seeds_grows_the_first_has_the_interval_of_its_mean_at_least():
    """Three candidates do not show whether it grows; eight of which the best differ the least show that it does not."""
    for count, backwards, grows in ((8, False, True), (8, True, False), (3, True, True)):
        spreads = np.linspace(0.1, 2.0, count)[:: -1 if backwards else 1]
        seeds = np.array([np.roll([-1.0, 0.3, 0.7], k) for k in range(count)])
        run = model(np.arange(count)[:, None] + spreads[:, None] * seeds, UNBOUNDED)
        first, spread = run.names[-1], run._shared
        assert spread is not None
        errors = run._least_errors(spread)
        quantiles = stdtrit(spread.degrees, 0.975)
        assert (errors >= quantiles - 1e-9).all() if grows else (errors == OWN).all()
        # those of similar means, of which there are three, differ more than the moderated variance of the first says
        if count == 8:
            assert (errors[-1] > quantiles[-1]) == grows
        mean, low, _ = run.expected[first]
        assert low <= run.interval(first)[0] - errors[-1] * math.sqrt(spread.variances[-1] / 3) + 1e-9 < mean


@pytest.mark.filterwarnings("error")
def test_equal_spreads_do_not_grow_and_single_seeds_say_nothing_of_them():
    means = np.arange(12.0)
    assert spread_grows(means, means + 1) and not spread_grows(means, 13 - means)
    assert not any(spread_grows(order, np.full(12, 0.1) * (1 + 1e-15 * order)) for order in (means, -means))
    # equal ones have equal ranks: in the order of the means, all but one would grow
    assert not spread_grows(means, np.where(means == 5, 2.0, 1.0))
    # twelve with two seeds, of equal spread, and eight of a single seed, which are the worst
    table = np.full((20, 2), np.nan)
    table[:8, 0] = np.arange(8.0)
    table[8:] = 10.0 + np.arange(12.0)[:, None] + np.array([[1.0, -1.0], [-1.0, 1.0]] * 6)
    run = model(table, UNBOUNDED)
    assert run._shared is not None and (run._least_errors(run._shared) == OWN).all()
    # all-or-nothing: those that never learn vary the least, which is not a sign that spreads grow
    draws = (EQUAL["learns or not, 0.3"].draw(np.random.default_rng(k), 11, 3)[1] for k in range(20))
    runs = [model(fitness, RATE) for fitness in draws]
    assert sum((each._least_errors(each._shared) != OWN).any() for each in runs if each._shared) <= 4


def test_what_candidates_share_with_a_seed_widens_new_seeds_once():
    """With a large common effect, those of similar means differ by no more than the variance without it says."""
    own = 0.1 * np.array([np.roll([-1.0, 0.3, 0.7], k) for k in range(3)])
    run = model(np.arange(3)[:, None] + own + np.array([-5.0, 1.0, 4.0]), UNBOUNDED)
    spread = run._shared
    assert spread is not None
    assert run._least_errors(spread) == pytest.approx(stdtrit(spread.degrees, 0.975))
    assert seed_variances(run._rest[0]).max() < 0.1 < seed_variances(run._deviations).min()


def test_ranking_has_what_to_expect_on_new_seeds():
    rng = np.random.default_rng(1)
    rows = [Result(f"c{k}" if k else "human", seed, "ok", rng.normal(0.5, 0.1)) for k in range(12) for seed in range(3)]
    first, *_, last = rank(rows)
    assert first.expected < first.fitness and last.expected > last.fitness
    assert first.expected_ci_low < 0.5 < first.expected_ci_high
    assert math.isnan(rank([row for row in rows if row.seed == 0])[0].expected)


# looks


def test_levels_of_all_looks_are_five_percent():
    """Independent looks would err this often; those of a run share seeds, see the simulation below."""
    levels = [look_level(k) for k in range(1, 60)]
    assert levels[:3] == [0.04, 0.008, 0.004] and 0.05 < sum(levels) < 0.06
    assert corrected([0.03, 0.6], 1) == pytest.approx([2 * 0.03 * 0.05 / 0.04, 0.6 * 0.05 / 0.04])
    assert corrected([0.01, math.nan], 2)[0] == pytest.approx(0.01 * 0.05 / 0.008)


@pytest.mark.slow
def test_a_run_that_is_extended_until_it_has_a_mark_has_a_false_one_in_five_percent():
    assert extended_family("normal", 1, 300)["marked"] <= beyond(0.05, 300)


def test_looks_are_those_of_the_runs_configs():
    def looks(now, *before):
        configs = [f"seeds: {seeds}\nlearning_iterations: {iterations}\n" for seeds, iterations in before]
        folder = SimpleNamespace(provenance=SimpleNamespace(before=configs))
        cfg = SimpleNamespace(seeds=now[0], seed=0, learning_iterations=now[1], race=SimpleNamespace(enabled=False))
        return looks_at(folder, cfg)  # type: ignore[arg-type]

    assert looks((3, 100)) == 1
    assert looks((3, 100), (1, 100)) == 1, "a single seed has no tests"
    assert looks((5, 100), (2, 100), (3, 100)) == 3
    assert looks((3, 200), (3, 100)) == 2, "longer trainings are tested again"
    assert looks((3, 100), (3, 100)) == 1, "candidates were added"
    assert looks_at(SimpleNamespace(provenance=None), SimpleNamespace(seeds=2, learning_iterations=1)) == 1  # type: ignore[arg-type]


def test_marks_of_a_second_look_are_rarer():
    rows = [Result(name, seed, "ok", x + 0.1 * y) for name, x in (("human", 0.0), ("a", 0.28))
            for seed, y in enumerate((0.0, 1.0, 0.3) if name == "human" else (0.2, 1.1, -0.1))]  # fmt: skip
    p_values = [rank(rows, looks=k)[0].vs_human_p for k in (1, 2, 3)]
    assert p_values[1] / p_values[0] == pytest.approx(0.04 / 0.008)
    assert p_values[2] / p_values[1] == pytest.approx(2) or p_values[2] == 1.0


def test_there_are_twenty_designs_that_the_model_was_not_made_for():
    assert sum(design.blind for design in [*EQUAL.values(), *DIFFERENT.values()]) >= 20
