import json
import math

import pytest

from envcoder_bench.results.ranking import entrants, rank, summary, write_summary
from envcoder_bench.results.rows import FAILED, FAILED_AT_LOAD, RUNNING, STOPPED, Result
from envcoder_bench.shaping.contract import Fault


def ok(candidate, seed, fitness, **more):
    return Result(candidate, seed, "ok", fitness, fitness - 0.01, fitness + 0.02, episodes=10, **more)


def test_difference_to_human_is_paired_by_seed():
    results = [ok("human", s, f) for s, f in ((0, 0.1), (1, 0.5), (2, 0.9))]
    results += [ok("a", s, f) for s, f in ((2, 1.0), (0, 0.2), (1, 0.63))]
    a, human = rank(results)
    # differences 0.10, 0.13, 0.10: mean 0.11, deviation 0.0173205, half width 4.3027 * 0.01
    assert a.vs_human == pytest.approx(0.11)
    assert a.vs_human_ci_low == pytest.approx(0.11 - 0.043027, abs=1e-5)
    assert a.vs_human_ci_high == pytest.approx(0.11 + 0.043027, abs=1e-5)
    # t = 0.11 / 0.01 with two degrees of freedom, whose two-sided p is 1 - t / sqrt(t^2 + 2); the first look at a run
    # has 0.04 of the 0.05
    assert a.vs_human_p == pytest.approx(1.25 * (1 - 11 / math.sqrt(123)), rel=1e-6)
    assert a.fitness_ci_high - a.fitness > 0.9, "seeds differ much more than candidates do"
    assert math.isnan(human.vs_human) and human.baseline


def test_only_candidates_with_all_seeds_may_be_the_best():
    seeds = {"a": (0.5, 0.51, 0.53), "b": (0.4, 0.42, 0.41)}
    results = [ok(name, seed, x) for name, own in seeds.items() for seed, x in enumerate(own)]
    results += [Result("c", seed, FAILED) for seed in range(3)]
    results += [ok("d", 0, 0.9), ok("d", 1, 0.91), Result("d", 2, FAILED)]
    results += [Result("e", seed, STOPPED, 0.9, stopped_at=5) for seed in range(3)]
    rows = {row.candidate: row for row in rank(results)}
    assert rows["a"].contender and not any(rows[name].contender for name in "cde")
    assert [row.candidate for row in rank(results)] == ["a", "b", "d", "e", "c"]
    assert (rows["d"].rank, rows["d"].status, rows["d"].lost_seeds) == (3, "2/3 seeds", 1)


def test_ranking_puts_failures_last_and_equals_share_a_place():
    results = [
        Result("z_late", 0, FAILED, fitness=0.99, fault=Fault("e")),  # what it had reached does not count
        Result("nan", 0, "ok"),
        ok("b", 0, 0.5),
        ok("a", 0, 0.5),
        Result("inf", 0, "ok", fitness=math.inf),
        ok("best", 0, 0.7),
        ok("negative", 0, -0.1),
        Result("at_load", 0, FAILED_AT_LOAD, fault=Fault("e")),
    ]
    for rows in (results, results[::-1]):
        ranked = rank(rows)
        names = [(r.rank, r.candidate) for r in ranked]
        assert names[:4] == [(1, "best"), (2, "a"), (2, "b"), (4, "negative")]
        assert names[4:] == [(None, "at_load"), (None, "inf"), (None, "nan"), (None, "z_late")]
        assert [r.status for r in ranked[4:]] == ["failed at load", "no fitness", "no fitness", "failed"]


def test_ranking_aggregates_status_and_totals_over_seeds():
    results = [
        ok("a", 0, 0.5, env_steps=100, unstable_resets=2, episode_length=10.0, shaped_return=4.0),
        Result("a", 2, FAILED, fault=Fault("second", "a.py", 3), env_steps=50, unstable_resets=1, fitness=0.9),
        Result("a", 1, FAILED, fault=Fault("first", "a.py", 2)),
        Result("a", 3, FAILED, fault=Fault("first", "a.py", 2)),
        Result("b", 0, RUNNING, fitness=0.4),
        ok("b", 1, 0.4),
    ]
    b, a = rank(results)
    assert (a.status, a.seeds, a.errors, a.error) == (
        "1/4 seeds", (0,), ("a.py:2: first", "a.py:3: second"), "a.py:2: first"
    )  # fmt: skip
    assert (a.env_steps, a.unstable_resets, a.episodes, a.episode_length, a.shaped_return) == (150, 3, 10, 10.0, 4.0)
    assert b.status == "running" and b.fitness == pytest.approx(0.4)


def test_summary_is_json_without_nan(tmp_path):
    ranked = rank([ok("human", 0, 0.8), ok("a", 0, 0.5), Result("b", 0, FAILED, fault=Fault("bad", "b.py", 1))])
    facts = {"task": "Anymal", "seeds": [0]}
    write_summary(tmp_path / "summary.json", summary(ranked, facts, {"results": "results.csv"}))
    read = json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)
    assert list(read) == ["task", "seeds", "best_candidate", "share_first_place", "ranking", "paths"]
    assert read["best_candidate"] == "a", "the best that is not a baseline"
    assert read["share_first_place"] == []
    (bad,) = [row for row in read["ranking"] if row["candidate"] == "b"]
    assert (bad["errors"], bad["faults"]) == (["b.py:1: bad"], [{"message": "bad", "file": "b.py", "line": 1}])
    tied = summary(rank([ok(name, 0, 0.5) for name in "ba"]), facts, {})
    assert (tied["best_candidate"], tied["share_first_place"]) == ("a", ["b"])
    assert summary([], facts, {})["best_candidate"] is None
    assert [(r["rank"], r["candidate"], r["baseline"]) for r in read["ranking"]] == [
        (1, "human", True), (2, "a", False), (None, "b", False)
    ]  # fmt: skip
    assert read["ranking"][1]["vs_human"] == pytest.approx(-0.3) and read["ranking"][1]["vs_human_ci_low"] is None
    assert read["ranking"][2]["fitness"] is None and read["ranking"][2]["errors"] == ["b.py:1: bad"]


def test_stopped_candidates_rank_last_and_are_not_compared():
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


def test_counts_name_candidates_and_baselines():
    """The untrained policy is not trained, so that it is none of them."""
    for names, words in (
        (["a", "b", "human", "unshaped", "untrained"], "2 candidates and 2 baselines"),
        (["a", "human"], "1 candidate and 1 baseline"),
        (["human", "untrained"], "1 baseline"),
        (["a", "b"], "2 candidates"),
        ([], "0 candidates"),
    ):
        assert entrants(names) == words
