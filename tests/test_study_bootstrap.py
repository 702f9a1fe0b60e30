"""The bootstrap of the study by hand, and against exhaustive enumeration where that is small."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from studies.bootstrap import bootstrap, iqm, pooled_iqm, probability_of_improvement


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
