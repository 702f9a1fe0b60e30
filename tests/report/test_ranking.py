import json
import math

import numpy as np
import pytest

from envcoder_bench.report.ranking import RunInfo, mean_interval, rank, summary, t_95, write_summary
from envcoder_bench.report.results import FAILED, FAILED_AT_LOAD, RUNNING, STOPPED, Result


def ok(candidate, seed, fitness, **more):
    return Result(candidate, seed, "ok", fitness, fitness - 0.01, fitness + 0.02, episodes=10, **more)


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 10, 17, 30, 31, 63, 200, 10_000])
def test_t_95_cuts_off_five_percent_of_students_density(freedom):
    # integrate the density over (-t, t) with x = tan(angle), so that heavy tails are no trouble
    angle, step = np.linspace(0, math.atan(t_95(freedom)), 200_001, retstep=True)
    log_norm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    y = np.exp(log_norm - (freedom + 1) / 2 * np.log1p(np.tan(angle) ** 2 / freedom)) / np.cos(angle) ** 2
    inside = 2 * step * (y.sum() - (y[0] + y[-1]) / 2)
    assert inside == pytest.approx(0.95, abs=1.2e-5)


def test_mean_interval_by_hand():
    # 1, 2, 4: mean 7/3, variance (16 + 1 + 25) / 9 / 2 = 7/3, half width 4.3027 * sqrt(7/9)
    mean, low, high = mean_interval([1.0, 2.0, 4.0])
    assert (mean, low, high) == pytest.approx((7 / 3, 7 / 3 - 3.79460, 7 / 3 + 3.79460), abs=1e-4)
    assert mean_interval([2.0])[0] == 2.0 and math.isnan(mean_interval([2.0])[1])
    assert all(math.isnan(x) for x in mean_interval([]))


def test_difference_to_human_is_paired_by_seed():
    results = [ok("human", s, f) for s, f in ((0, 0.1), (1, 0.5), (2, 0.9))]
    results += [ok("a", s, f) for s, f in ((2, 1.0), (0, 0.2), (1, 0.63))]
    a, human = rank(results)
    # differences 0.10, 0.13, 0.10: mean 0.11, deviation 0.0173205, half width 4.3027 * 0.01
    assert a.vs_human == pytest.approx(0.11)
    assert a.vs_human_ci_low == pytest.approx(0.11 - 0.043027, abs=1e-5)
    assert a.vs_human_ci_high == pytest.approx(0.11 + 0.043027, abs=1e-5)
    assert a.fitness_ci_high - a.fitness > 0.9, "seeds differ much more than candidates do"
    assert math.isnan(human.vs_human) and human.baseline


def test_only_common_seeds_are_compared():
    results = [ok("human", 0, 0.5), Result("human", 1, FAILED), ok("a", 0, 0.6), ok("a", 1, 0.9), ok("b", 1, 0.9)]
    by_name = {r.candidate: r for r in rank(results)}
    assert by_name["a"].vs_human == pytest.approx(0.1) and math.isnan(by_name["a"].vs_human_ci_low)
    assert by_name["a"].fitness == pytest.approx(0.75)
    assert math.isnan(by_name["b"].vs_human)


def test_one_seed_has_its_interval_over_episodes():
    (one,) = rank([ok("a", 3, 0.5)])
    assert (one.fitness_ci_low, one.fitness_ci_high, one.interval_over) == (0.49, 0.52, "episodes")
    (two,) = rank([ok("a", 3, 0.5), ok("a", 4, 0.6)])
    assert two.interval_over == "seeds" and two.fitness_ci_high == pytest.approx(0.55 + 12.7062 * 0.05)


def test_order_failures_last_and_ties_by_name():
    results = [
        Result("z_late", 0, FAILED, fitness=0.99, error="e"),  # what it had reached does not count
        Result("nan", 0, "ok"),
        ok("b", 0, 0.5),
        ok("a", 0, 0.5),
        Result("inf", 0, "ok", fitness=math.inf),
        ok("best", 0, 0.7),
        ok("negative", 0, -0.1),
        Result("at_load", 0, FAILED_AT_LOAD, error="e"),
    ]
    for rows in (results, results[::-1]):
        ranked = rank(rows)
        names = [(r.rank, r.candidate) for r in ranked]
        assert names[:4] == [(1, "best"), (2, "a"), (3, "b"), (4, "negative")]
        assert names[4:] == [(None, "at_load"), (None, "inf"), (None, "nan"), (None, "z_late")]
        assert [r.status for r in ranked[4:]] == ["failed at load", "no fitness", "no fitness", "failed"]


def test_status_and_totals_over_seeds():
    results = [
        ok("a", 0, 0.5, env_steps=100, unstable_resets=2, episode_length=10.0, shaped_return=4.0),
        Result("a", 2, FAILED, error="a.py:3: second", env_steps=50, unstable_resets=1, fitness=0.9),
        Result("a", 1, FAILED, error="a.py:2: first"),
        Result("a", 3, FAILED, error="a.py:2: first"),
        Result("b", 0, RUNNING, fitness=0.4),
        ok("b", 1, 0.4),
    ]
    a, b = rank(results)
    assert (a.status, a.seeds, a.errors, a.error) == (
        "3/4 seeds failed", (0,), ("a.py:2: first", "a.py:3: second"), "a.py:2: first"
    )  # fmt: skip
    assert (a.env_steps, a.unstable_resets, a.episodes, a.episode_length, a.shaped_return) == (150, 3, 10, 10.0, 4.0)
    assert b.status == "running" and b.fitness == pytest.approx(0.4)


def test_summary_is_json_without_nan(tmp_path):
    ranked = rank([ok("human", 0, 0.8), ok("a", 0, 0.5), Result("b", 0, FAILED, error="b.py:1: bad")])
    info = RunInfo("Anymal", "tracking, 0 to 1", [0], 256, 500, 3_000_000, 60.0, {"results": "results.csv"})
    write_summary(tmp_path / "summary.json", summary(ranked, info))
    read = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert read["env_steps_per_second"] == 50_000 and read["seeds"] == [0]
    assert read["best_candidate"] == "a", "the best that is not a baseline"
    assert [(r["rank"], r["candidate"], r["baseline"]) for r in read["ranking"]] == [
        (1, "human", True), (2, "a", False), (None, "b", False)
    ]  # fmt: skip
    assert read["ranking"][1]["vs_human"] == pytest.approx(-0.3) and read["ranking"][1]["vs_human_ci_low"] is None
    assert read["ranking"][2]["fitness"] is None and read["ranking"][2]["errors"] == ["b.py:1: bad"]


def test_summary_of_nothing():
    content = summary([], RunInfo("Anymal", "m", [], 1, 0, 0, 0.0))
    assert content["best_candidate"] is None and content["env_steps_per_second"] is None


def test_stopped_candidates_rank_below_all_that_went_on_and_are_not_compared():
    def stopped(candidate, seed, fitness, at):
        return Result(candidate, seed, STOPPED, fitness, stopped_at=at, reason=f"rank 4 at {at}")

    rows = [ok("human", 0, 0.5), ok("low", 0, 0.1), stopped("early", 0, 0.9, 30), stopped("late", 0, 0.2, 50)]
    rows += [stopped("late", 1, 0.4, 50), stopped("earlier_but_worse", 0, 0.3, 30)]
    ranked = rank(rows)
    assert [r.candidate for r in ranked] == ["human", "low", "late", "early", "earlier_but_worse"]
    assert [r.rank for r in ranked] == [1, 2, 3, 4, 5]
    late = ranked[2]
    assert (late.status, late.stopped_at, late.reason) == ("stopped at 50", 50, "rank 4 at 50")
    assert late.fitness == pytest.approx(0.3) and math.isnan(late.vs_human)
    assert ranked[1].vs_human == pytest.approx(-0.4)
