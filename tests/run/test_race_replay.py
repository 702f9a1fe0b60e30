"""Replays of races over recorded curves: what they judge, and D3RB beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

from envcoder_bench.report.points import Point, PointLog
from envcoder_bench.report.results import Result, write_results
from envcoder_bench.run.race import HALVING, Rules

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import race
import race_d3rb

POINTS = range(1, 11)


def recording(curves, seeds=1, episodes=4, spread=0.01):
    """Episodes differ by ``spread`` around the curve."""
    wave = [spread * (-1) ** k for k in range(episodes)]
    keys = {(name, seed): own for name, own in curves.items() for seed in range(seeds)}
    return race.Recording(
        {t: {key: tuple(own[k] + x for x in wave) for key, own in keys.items()} for k, t in enumerate(POINTS)}
    )


def rising(slope):
    return [slope * t for t in POINTS]


def test_winner_within_the_interval_of_the_best_is_counted():
    """Halving stops the late candidate, which has the best final fitness."""
    early = {f"c{k}": rising(0.05 - 0.001 * k) for k in range(7)}
    for ends_at, within in ((0.505, True), (0.6, False)):
        own = recording({**early, "late": [0.0] * 9 + [ends_at]})
        outcome = race.judge(own, race.replay(own, Rules(HALVING, keep=0.5), [5]))
        assert (outcome.best, outcome.within, outcome.wronged) == (False, within, 1)
        assert outcome.loss == pytest.approx(ends_at - 0.5)
        assert outcome.share == pytest.approx((4 * 5 + 4 * 10) / 80)
    of_seeds = recording({**early, "late": [0.0] * 9 + [0.505]}, seeds=2)
    assert of_seeds.low == pytest.approx(0.505)  # both seeds alike


def test_d3rb_trains_better_candidates_longer():
    equals = {name: [0.5] * 10 for name in "abcd"}
    _, reached = race_d3rb.select(equals, POINTS, 20, 0.1, Random(0))
    assert set(reached.values()) == {5}
    fitness = {"bad": [0.0] * 10, "good": [0.9] * 10, "poor": [0.2] * 10}
    name, reached = race_d3rb.select(fitness, POINTS, 15, 0.05, Random(0))
    assert name == "good" and sum(reached.values()) == 15
    assert reached["good"] > 2 * max(reached["bad"], reached["poor"]) > 0


def test_d3rb_ends_when_all_are_trained():
    fitness = {"a": rising(0.1), "b": rising(0.05)}
    assert race_d3rb.select(fitness, POINTS, 1000, 0.1, Random(0)) == ("a", {"a": 10, "b": 10})


def test_unrecorded_run_is_replayed_by_its_curves(tmp_path):
    """The final fitness and its interval are those of results.csv; the curves decide at the rungs."""
    log = PointLog(tmp_path / "points.csv")
    for t in POINTS:
        for k in range(8):
            log.add(Point(f"c{k}", 0, t, 100 * t, 0.1 * t - 0.01 * k, 9.0))
    log.close()
    rows = [Result(f"c{k}", 0, "ok", fitness=0.5 + 0.1 * k, fitness_ci_low=0.5 + 0.1 * k - 0.25) for k in range(8)]
    write_results(tmp_path / "results.csv", rows)
    whole, *chosen = race.read_unrecorded(tmp_path, 3, 5)
    assert (whole.end, whole.final["c7"], whole.low) == (10, pytest.approx(1.2), pytest.approx(0.95))
    assert [len(own.names) for own in chosen] == [5] * 3
    assert all(own.low == pytest.approx(max(own.final.values()) - 0.25) for own in chosen)
    outcome = race.race(whole, Rules(HALVING, keep=0.75), [5])
    assert outcome.loss == pytest.approx(0.2) and outcome.within and not outcome.best
    assert outcome.share == pytest.approx((2 * 5 + 6 * 10) / 80)


def test_race_plot_is_written(tmp_path):
    own = recording({f"c{k}": rising(0.1 - 0.01 * k) for k in range(8)})
    race.draw({"one": race.curves([own]), "two": race.curves([own])}, tmp_path / "race.png")
    assert (tmp_path / "race.png").stat().st_size > 10_000
