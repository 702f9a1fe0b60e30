"""How components make up a reward: recognised from values, or refused."""

import numpy as np
import pytest

from envcoder_bench.shaping.combination import EXPONENTIAL, PRODUCT, SUM, NotDivisible, find_combination

_RNG = np.random.default_rng(0)
A, B, C = (_RNG.normal(size=2000).astype(np.float32) for _ in range(3))
P, Q = np.abs(A) + np.float32(0.1), np.abs(B)
ONE, NONE = np.ones_like(A), np.zeros_like(A)
BOTH = {"a": A, "b": B}
FALL = np.where(C > 1, np.float32(-2), np.float32(0))
DOWN = np.where(C > 1, -P, A)
CONSTANT = {"a": A, "alive": np.float32(3) * ONE, "bonus": np.float32(2) * ONE}  # in the rollouts
UP, NEAR_MIDDLE = (np.where(np.abs(x) < 1, np.float32(1), np.float32(0)) for x in (A, B))
HUGE = np.exp(8 * A)  # as exp(speed / 0.1)
NEAR = {"p": np.exp(-P / 3000), "q": np.exp(-Q / 5000), "r": np.exp(-P * Q / 4000), "whole": ONE}  # factors near 1


def f(x):
    return np.float32(x)


@pytest.mark.parametrize(
    ("reward", "terms", "weights", "more"),
    [
        (A + B, BOTH, [1, 1], {}),
        (f(2) * A - f(0.3) * B, BOTH, [2, -0.3], {}),
        (f(-0.02) * A + B + f(1.5), BOTH, [-0.02, 1], {"offset": 1.5}),
        (np.maximum(A + B, 0), BOTH, [1, 1], {"low": 0.0}),
        (np.minimum(f(2) * A + B, 0), BOTH, [2, 1], {"high": 0.0}),
        (np.clip(f(2) * A - B, -1, 1), BOTH, [2, -1], {"low": -1.0, "high": 1.0}),
        (np.where(C > 1, f(-2), A + B), BOTH, [1, 1], {"overrides": (-2.0,)}),
        (np.where(C > 2, f(-2), np.maximum(f(3) * A - B, 0)), BOTH, [3, -1], {"low": 0.0, "overrides": (-2.0,)}),
        (np.where(np.arange(2000) < 3, f(-2), A - B), BOTH, [1, -1], {"overrides": (-2.0,)}),  # too few to be seen
        (np.maximum(f(2) * A - B, 0) + FALL, {**BOTH, "fall": FALL}, [2, -1, 1], {"low": 0.0, "after": "fall"}),
        # every fall is where the sum is at its bound: no fixed number, but the price of a fall
        (np.maximum(DOWN, 0) + FALL, {"a": DOWN, "fall": FALL}, [1, 1], {"low": 0.0, "after": "fall"}),
        (A + B, {**BOTH, "total": A + B}, [1, 1, 0], {}),
        (f(2) * A + B, {**BOTH, "shown": C}, [2, 1, 0], {}),
        (A, {"a": A, "shown": C, "never": NONE}, [1, 0, 0], {}),
        (A * B + C, {**BOTH, "total": A * B + C}, [0, 0, 1], {}),  # it alone, where others make it up in another way
        (A + ONE, {"a": A, "alive": ONE}, [1, 1], {}),
        (f(3) * A + f(2) * ONE, {"a": A, "alive": ONE}, [3, 2], {}),
        (A + f(5), CONSTANT, [1, 1, 1], {}),
        (A + f(3), CONSTANT, [1, 1, 0], {}),
        (f(3) * A, {"a": A, "never": NONE}, [3, 1], {"unseen": ("never",)}),
        (P * Q, {"p": P, "q": Q}, [1, 1], {"form": PRODUCT}),
        (np.sqrt(P) * Q**2, {"p": P, "q": Q}, [0.5, 2], {"form": PRODUCT}),
        (UP * NEAR_MIDDLE, {"up": UP, "middle": NEAR_MIDDLE}, [1, 1], {"form": PRODUCT}),  # no sum with overrides
        (f(5) * P * Q**2, {"p": P, "q": Q}, [1, 2], {"form": PRODUCT, "offset": np.log(5)}),
        (np.prod([*NEAR.values()], axis=0), NEAR, [1, 1, 1, 1], {"form": PRODUCT}),  # no weighted sum
        (np.exp(f(0.5) * A - f(2) * P - f(3)), {"a": A, "p": P}, [0.5, -2], {"form": EXPONENTIAL, "offset": -3.0}),
        (HUGE + f(0.5) * A - f(0.1) * B, {"huge": HUGE, **BOTH}, [1, 0.5, -0.1], {}),
        # what is logged beside the terms: as a plain sum of the most terms, else as a sum of the fewest
        (f(2) * A + B, {"a": A, "twice": f(2) * A, "b": B, "total": f(2) * A + B}, [0, 1, 1, 0], {}),
        (np.maximum(A + B, 0), {**BOTH, "sum": A + B, "total": np.maximum(A + B, 0)}, [1, 1, 0, 0], {"low": 0.0}),
        (A + B + C, {**BOTH, "c": C, "sum": A + B, "twice": f(2) * C}, [1, 1, 1, 0, 0], {}),
        (f(-3) * (A + B) + f(2) * C, {**BOTH, "sum": A + B, "c": C}, [0, 0, -3, 2], {}),
        (np.where(A > 0, f(1), f(0)) + np.where(B > 0, f(0.5), f(0)),
         {"a": np.where(A > 0, f(1), f(0)), "b": np.where(B > 0, f(0.5), f(0))}, [1, 1], {}),
    ],
)  # fmt: skip
def test_forms_are_recognised(reward, terms, weights, more):
    how = find_combination(reward, terms)
    assert list(how.weights.values()) == pytest.approx(weights, rel=1e-5)
    expected = {
        "form": SUM,
        "offset": 0.0,
        "low": None,
        "high": None,
        "overrides": (),
        "unseen": (),
        "after": None,
        **more,
    }
    assert {key: getattr(how, key) for key in expected} == expected
    assert how.used == [name for name, weight in zip(terms, weights) if weight]
    assert str(how)


@pytest.mark.parametrize(
    ("reward", "terms", "message"),
    [
        (A, {}, "returns no components"),
        (np.maximum(A, B), BOTH, "not the sum"),
        (A * B, BOTH, "not the sum"),  # a product of terms with both signs cannot be raised to powers
        (A + B + C * C, BOTH, "not the sum"),
        (A + B + f(0.001) * C, BOTH, "not the sum"),  # beyond the tolerance
        (A + B + f(2e-4) * np.tanh(C) * (np.abs(A) + np.abs(B)), BOTH, "not the sum"),
        (np.tanh(f(0.001) * (A + B)), {"a": f(0.001) * A, "b": f(0.001) * B}, "not the sum"),  # nearly
        (np.where(np.arange(2000) == 7, f(-2.34567), A + B), BOTH, "not the sum"),  # no fixed value, but one state
        (f(2) * ONE, {"alive": f(2) * ONE, "shown": A}, "is constant, 2 in all states"),
        (f(2) * A + f(3) * B + f(2) * C + C * C, {**BOTH, "sum": A + B}, "a and b and sum depend on each other"),
        (A + f(0.5) * (f(3) * ONE) + f(2) * ONE, CONSTANT, "alive and bonus depend on each other"),
        (np.maximum(A + f(3.5), 3), CONSTANT, "alive and bonus depend on each other"),
        # some states have the reward of a sum by chance, which are 0 or 1 like those that do not
        (np.where(C > 0, f(1), f(0)), {"up": UP, "middle": NEAR_MIDDLE}, "not the sum"),
        (np.full_like(A, np.nan), BOTH, "too few states"),
    ],
)
def test_other_rewards_are_not_divided(reward, terms, message):
    with pytest.raises(NotDivisible, match=message):
        find_combination(reward, terms)


def test_rounding_of_a_sum_of_many_terms_is_no_other_form():
    terms = {f"t{k}": (10.0 ** (k % 4) * _RNG.normal(size=3000)).astype(np.float32) for k in range(20)}
    total = np.zeros(3000, np.float32)
    for term in terms.values():
        total = total + np.float32(0.02) * term
    how = find_combination(np.maximum(total, 0), terms)
    assert list(how.weights.values()) == pytest.approx([0.02] * 20, rel=1e-4) and how.low == 0.0
