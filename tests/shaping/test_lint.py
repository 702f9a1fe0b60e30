"""Remarks on terms: constant, hardly counting, cancelled; nothing else."""

import re

import numpy as np
import pytest

from envcoder_bench.shaping.combination import PRODUCT, SUM, Combination, term_remarks

_RNG = np.random.default_rng(0)
A, B = _RNG.normal(size=500), _RNG.normal(size=500)
ONE = np.ones(500)


@pytest.mark.parametrize(
    ("terms", "weights", "words"),
    [
        ({"a": A, "b": B}, {}, []),
        ({"a": A, "alive": 0.5 * ONE}, {}, ["alive is 0.5 in all 500 states"]),
        ({"a": 2 + np.abs(A), "b": 0.01 * np.tanh(B)}, {}, [r"b is at most 0.\d+ % of what is added"]),
        ({"a": 2 + np.abs(A), "b": np.tanh(B)}, {"b": 0.001}, ["b is at most"]),  # by its weight
        ({"a": A, "b": 1e-3 * B}, {}, []),  # where a is near 0, b counts
        ({"a": A, "b": -A, "c": B}, {}, ["a and b cancel each other"]),
        ({"a": A, "b": -2 * A, "c": B}, {"b": 0.5}, ["a and b cancel"]),
        ({"a": A, "b": -0.5 * A}, {}, []),
        ({"a": A, "never": 0 * ONE}, {}, []),
        ({"a": A, "unused": ONE}, {"unused": 0.0}, []),
        ({"only": 1e-9 * A}, {}, []),
    ],
)
def test_remarks(terms, weights, words):
    how = Combination(SUM, {name: weights.get(name, 1.0) for name in terms})
    remarks = term_remarks(how, terms)
    assert len(remarks) == len(words)
    for remark, word in zip(remarks, words):
        assert re.search(word, remark), remark


def test_terms_of_a_product_are_not_looked_at():
    assert term_remarks(Combination(PRODUCT, {"a": 1.0}), {"a": ONE}) == []
