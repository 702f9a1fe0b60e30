"""Ranks over the last quarter of a training: what is compared, and what is said of it."""

from dataclasses import replace

import pytest
from test_table import ok

from envcoder_bench.report.certainty import long_enough
from envcoder_bench.results.last_quarter import LastQuarter, last_quarter
from envcoder_bench.results.logs import Point
from envcoder_bench.results.ranking import rank

NAMES = [f"c{k}" for k in range(8)]
COMPLETE = {(name, seed) for name in (*NAMES, "human") for seed in (0, 1)}


def points(orders, length=300.0):
    """Evaluations of two seeds by iteration; each order has the places of the candidates, the last one is full."""
    return [
        Point(name, seed, k, 100 * k, place + 0.1 * seed, length if k < max(orders) else 3 * length, {})
        for k, order in orders.items()
        for seed in (0, 1)
        for name, place in [*zip(NAMES, order), ("human", 99.0 * k)]
    ]


SAME, SWAPPED = list(range(8)), [1, 0, 3, 2, 5, 4, 7, 6]
REVERSED = SAME[::-1]


@pytest.mark.parametrize(
    ("orders", "short", "expected"),
    [
        ({k: SAME for k in range(1, 11)}, None, (7, 10, 1.0)),
        ({k: SAME for k in range(1, 11)}, 300, (6, 9, 1.0)),  # the last evaluation has longer episodes
        ({**{k: SAME for k in range(1, 10)}, 10: REVERSED}, 300, (6, 9, 1.0)),
        ({**{k: SAME for k in range(1, 10)}, 10: REVERSED}, None, (7, 10, -1.0)),
        ({3: REVERSED, 6: SAME, 8: SWAPPED}, None, (6, 8, 1 - 6 * 8 / (8 * 63))),
        ({1: SAME, 2: SAME}, None, (1, 2, 1.0)),
    ],
)
def test_comparable_evaluations_a_quarter_apart_are_compared(orders, short, expected):
    held = last_quarter(points(orders), COMPLETE, short=short)
    assert (held.begin, held.end, held.candidates) == (*expected[:2], 8)  # without the baseline
    assert held.agreement == pytest.approx(expected[2]) and held.enough == (expected[2] >= 0.9)


def test_nothing_is_said_of_few_candidates_few_evaluations_and_candidates_that_were_stopped():
    whole = points({k: SAME for k in (3, 4)})
    assert last_quarter([], COMPLETE) is None and last_quarter(points({4: SAME}), COMPLETE) is None
    assert last_quarter(points({1: SAME, 4: SAME}), COMPLETE) is None  # nothing is near the last quarter
    assert last_quarter(whole, {key for key in COMPLETE if key[0] in NAMES[:4]}) is None
    assert last_quarter(whole, {key for key in COMPLETE if key[0] in NAMES[:5]}).candidates == 5
    assert last_quarter([replace(x, fitness=1.0) for x in whole], COMPLETE) is None  # all ranks are equal


def test_what_to_do_depends_on_ranks_and_ceiling():
    ranked = rank([ok(name, 0, 0.1 * k) for k, name in enumerate(NAMES)])
    held = LastQuarter(0.5, 75, 100, 8, 0.2)
    (line,) = long_enough(held, ranked, "R")
    assert line.startswith("ranks still change over the last quarter of the training (Spearman's correlation 0.50 ")
    assert line.endswith(": train longer, eval-shapers --extend R --learning_iterations N")
    (line,) = long_enough(replace(held, at_ceiling=0.6), ranked, "R")
    assert line.endswith("most candidates are at the ceiling of the fitness")
    assert long_enough(replace(held, agreement=0.95), ranked, "R") == []  # this does not show that it was long enough
    stopped = [replace(row, stopped_at=10) for row in ranked]
    assert "--extend" not in long_enough(held, stopped, "R")[0] and long_enough(None, ranked) == []
    nothing = rank([ok("untrained", 0, 9.0), *(ok(name, 0, 0.1 * k) for k, name in enumerate(NAMES))])
    assert long_enough(held, nothing, "R") == []  # another line says that


def test_share_at_the_ceiling_is_counted_at_the_end():
    whole = points({3: SAME, 4: SAME})
    assert last_quarter(whole, COMPLETE, (0.0, 5.0)).at_ceiling == 3 / 8
    assert last_quarter(whole, COMPLETE).at_ceiling == 0.0
