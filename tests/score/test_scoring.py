"""The score: normalization, interquartile mean, and an interval that holds the truth."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import trim_mean

from envcoder_bench.score.document import _steps_to
from envcoder_bench.score.page import _dollars
from envcoder_bench.score.scoring import Estimate, TaskValues, human_score, interquartile_mean, mean_estimate, score


def task(runs, human=(1.0, 1.1, 0.9), unshaped=(0.1, 0.0, 0.2), **references):
    arrays = {name: np.asarray(x, float) for name, x in {"human": human, **references}.items()}
    return TaskValues(np.asarray(unshaped, float), arrays, np.asarray(runs, float))


def test_unshaped_is_0_and_the_best_reference_is_1():
    values = task([[0.1, 0.0, 0.2], [2.0, 2.1, 1.9], [1.0, 1.1, 0.9]], known=(2.0, 2.1, 1.9))
    assert values.best == "known"
    assert values.scores.tolist() == pytest.approx([0.0, 1.0, 0.9 / 1.9])


@pytest.mark.parametrize("count", [4, 8, 40])
def test_interquartile_mean_is_scipys_where_no_value_is_divided(count):
    values = np.random.default_rng(count).normal(size=count)
    assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25))


def test_interquartile_mean_of_few_values_by_hand():
    # of six values a quarter is one and a half: half of the second and of the fifth count
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, -50.0])) == pytest.approx(
        (0.5 * 1 + 2 + 3 + 0.5 * 4) / 3
    )
    assert interquartile_mean(np.array([7.0])) == 7.0
    assert np.isnan(interquartile_mean(np.array([])))


def test_a_weight_of_two_is_the_value_twice():
    twice = interquartile_mean(np.array([0.0, 0.0, 2.0, 1.0]))
    assert interquartile_mean(np.array([2.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0])) == twice == 0.5


def test_a_task_that_does_not_separate_is_not_counted():
    clear, unclear = task([[1.0, 1.1, 0.9]]), task([[9.0, 9.0, 9.0]], human=(0.4, 0.1, 0.3))
    assert clear.separates and not unclear.separates
    assert score([clear, unclear]).mean == score([clear]).mean == pytest.approx(1.0)
    assert np.isnan(score([unclear]).mean)


def test_a_reference_below_unshaped_does_not_separate():
    assert not task([[1.0, 1.0, 1.0]], human=(0.0, 0.1, 0.0), unshaped=(0.5, 0.5, 0.5)).separates


def _drawn(rng, count=5):
    """Searches whose fitness varies by 0.15 among them and by 0.05 with the seed, which all have in common."""
    tasks = []
    for truth in (0.4, 0.7, 0.9, 1.1):
        common = rng.normal(0, 0.05, size=5)
        runs = truth + rng.normal(0, 0.15, size=(count, 1)) + common + rng.normal(0, 0.05, size=(count, 5))
        tasks.append(TaskValues(common, {"human": 1.0 + common}, runs))
    return tasks


def test_the_interval_holds_the_score_of_many_searches():
    many = _drawn(np.random.default_rng(0), count=4000)
    truth = float(interquartile_mean(np.concatenate([task.scores for task in many])))
    found = [score(_drawn(np.random.default_rng(k)), seed=k) for k in range(60)]
    assert sum(each.low <= truth <= each.high for each in found) >= 54  # 90 %
    assert np.mean([each.mean for each in found]) == pytest.approx(truth, abs=0.02)


def test_both_halves_of_the_searches_agree_within_their_intervals_where_one_task_varies_more():
    rng, agree = np.random.default_rng(1), 0
    for split in range(60):
        tasks = []
        for truth, spread in ((1.1, 0.05), (1.8, 0.5)):
            common = rng.normal(0, 0.05, size=5)
            runs = truth + rng.normal(0, spread, size=(10, 1)) + common + rng.normal(0, 0.05, size=(10, 5))
            tasks.append(TaskValues(common, {"human": 1.0 + common}, runs))
        halves = [
            score([TaskValues(t.unshaped, t.references, t.runs[part]) for t in tasks], seed=split)
            for part in (slice(5), slice(5, 10))
        ]
        agree += halves[0].low <= halves[1].high and halves[1].low <= halves[0].high
    assert agree >= 57  # 95 %; with as many draws as there are searches 56


def test_gain_has_the_mean_of_all_searches_and_an_interval():
    gain = mean_estimate([[0.1, 0.3], [0.2]])
    assert gain.mean == pytest.approx(0.2) and gain.low <= 0.2 <= gain.high
    assert np.isnan(mean_estimate([[], []]).mean)


def test_a_group_counts_by_its_size_in_the_interval_as_in_the_mean():
    # a draw has two of the three and the only one of the other group: the mean is 1/4, where equal draws say 1/3
    assert mean_estimate([[0.0, 0.0, 0.0], [1.0]]) == Estimate(0.25, 0.25, 0.25)
    # of the scores 0, 1, 1, 1 the middle half is 1; with equal weights a draw of 0, 1, 1 gives 0.83
    estimate = score([task([[0.1, 0.0, 0.2]]), task([[1.0, 0.9, 1.1]] * 3)])
    assert [estimate.mean, estimate.low, estimate.high] == pytest.approx([1.0, 1.0, 1.0])


def test_human_as_a_model_has_the_score_of_the_human_references():
    humans = [(0.1, 0.2, 0.15), (1.0, 1.1, 0.9), (2.0, 2.1, 1.9), (9.0, 9.1, 8.9), (-4.0, -4.1, -4.2)]
    tasks = [task([human], human=human, best=(10.0, 10.1, 9.9)) for human in humans]
    assert human_score(tasks) == pytest.approx(score(tasks).mean)
    assert human_score(tasks) != pytest.approx(np.mean([x.score_of(x.references["human"]) for x in tasks]), abs=0.05)
    assert np.isnan(human_score([]))


def test_env_steps_to_90_percent_count_from_the_untrained_policy_and_leave_out_points_of_lost_seeds(tmp_path):
    points = tmp_path / "points.csv"
    rows = {100: (0.5, 0.7), 200: (0.85, 0.8), 300: (1.3,), 400: (0.9, 0.95), 500: (1.0, 1.0)}
    lines = ["iteration,env_steps,candidate,seed,fitness,episode_length,shaped_return,component,mean,min,max"]
    for steps, by_seed in rows.items():
        lines += [f"1,{steps},{name},{seed},{x},9,,,,," for seed, x in enumerate(by_seed) for name in ("a", "b")]
    points.write_text("\n".join(lines) + "\n")
    run = SimpleNamespace(folder=SimpleNamespace(points=points))
    assert _steps_to(run, "a", 0.0) == 400  # 0.9 of 1; from the first point on it were 0.96, of 500
    assert _steps_to(run, "a", -1.0) == 200  # 0.8
    assert math.isnan(_steps_to(run, "a", 1.5)) and math.isnan(_steps_to(run, "c", 0.0))
    points.unlink()
    assert math.isnan(_steps_to(run, "a", 0.0))


def test_a_cost_is_unknown_if_that_of_a_part_is():
    assert _dollars([0.5, 0.25]) == "$0.75" and _dollars([0.0]) == "$0.00" and _dollars([0.5, None]) == "unknown"
