"""Remarks on rewards: constant, negligible and cancelling terms; opposing the fitness; standing still."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from envcoder_bench.shaping.lint import (
    CHANCE,
    FACTORS,
    Played,
    mostly,
    opposed,
    still_remarks,
    term_remarks,
    unmoved,
    unrelated,
)

_RNG = np.random.default_rng(0)
A, B = _RNG.normal(size=500), _RNG.normal(size=500)
ONE = np.ones(500)


@pytest.mark.parametrize(
    ("terms", "weights", "words"),
    [
        ({"a": A, "b": B}, {}, []),
        ({"a": A, "bonus": 0.5 * ONE}, {}, ["bonus is 0.5 in all 500 states"]),
        ({"a": A, "alive": 0.5 * ONE}, {}, []),  # as its name says
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
    remarks = term_remarks({name: weights.get(name, 1.0) for name in terms}, terms, "rollouts")
    assert len(remarks) == len(words)
    for remark, word in zip(remarks, words):
        assert re.search(word, remark), remark


def test_terms_whose_weight_is_not_one_number_are_not_looked_at():
    assert term_remarks({"a": None}, {"a": ONE}, "rollouts") == []


@pytest.mark.parametrize("count", [1, 9, 10, 16, 32, 100])
def test_preference_without_any_is_as_rare_as_it_says(count):
    passing = [wins for wins in range(count + 1) if mostly(np.zeros(count), np.arange(count) < wins)]
    assert sum(math.comb(count, wins) for wins in passing) <= CHANCE * 2**count
    assert bool(passing) == (count >= 10) and all(wins >= 0.75 * count for wins in passing)


def played(name, speed, fitness, reward=None):
    """Ten times of 32 episodes."""
    shape = (10, 32)
    speed = speed * _RNG.uniform(0.8, 1.2, shape)
    return Played(
        name, np.ones(shape), fitness + 0.1 * _RNG.normal(size=32), speed, speed if reward is None else reward
    )


@pytest.mark.parametrize(("sign", "count"), [(1.0, 0), (-1.0, 1), (0.0, 0)])
def test_reward_that_prefers_the_less_fit_policy_is_named(sign, count):
    fit, unfit = (played(name, 1.0, x, sign * x + 0.1 * _RNG.normal(size=(10, 32))) for name, x in (("a", 1), ("b", 0)))
    remarks = opposed(fit, unfit)
    assert len(remarks) == count and all("higher for the b policy, in 32 of 32 episodes" in line for line in remarks)


@pytest.mark.parametrize(
    ("reward", "ends", "words"),
    [
        (lambda one: one.speed - 3.0, True, ["positive in 0 % of the steps"]),  # it costs less of the fitter policy
        (lambda one: one.speed - 3.0, False, []),  # an episode cannot end early
        (lambda one: one.speed - 0.5, True, []),
        (
            lambda one: 0 * one.speed + 1,
            False,
            ["does not prefer the fitter policy: the a baseline has a higher return"],
        ),
        (lambda one: 0 * one.speed, True, []),  # a sparse reward that nobody reached
        (lambda one: 1.0 * (one.speed > 1.15), True, []),  # a sparse one
    ],
)
def test_reward_that_only_costs_or_prefers_nobody_is_named(reward, ends, words):
    fit, unfit = (played(name, speed, speed) for name, speed in (("a", 1.0), ("b", 0.5)))
    for one in (fit, unfit):
        one.weight[-1] = ends and one is unfit
    remarks = opposed(*(replace(one, reward=reward(one)) for one in (fit, unfit)))
    assert len(remarks) == len(words) and all(word in line for word, line in zip(words, remarks))


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda x, v: x + 0.2 * v, []),
        (lambda x, v: np.exp(x) * (x > 1.0), []),  # it tells some of the states apart
        (lambda x, v: v**2, ["hardly follows the fitness: of two states"]),
        (lambda x, v: -x, ["hardly follows the fitness: of two states"]),
        (lambda x, v: 0 * x + 1, []),  # not known
    ],
)
def test_reward_that_does_not_follow_the_fitness_of_states_is_named(reward, words):
    x, v = _RNG.normal(size=(2, 10, 32)), _RNG.normal(size=(2, 10, 32))
    policies = [replace(played(f"{k}", 1.0, 1.0), reward=reward(x[k], v[k])) for k in (0, 1)]
    remarks = unrelated(policies, [x[0], x[1]])
    assert len(remarks) == len(words) and all(word in line for word, line in zip(words, remarks))


@pytest.mark.parametrize(
    ("reward", "words"),
    [
        (lambda v: v, []),
        (lambda v: np.exp(-((1.0 - v) ** 2)) - 0.02 * v**2, []),
        (lambda v: np.abs(v), ["as velocities change"]),  # any direction
        (lambda v: 0 * v + 1, ["as velocities change"]),
        (lambda v: -v, ["rise and fall together in 0 % of the pairs"]),
    ],
)
def test_reward_that_does_not_follow_the_fitness_as_velocities_change_is_named(reward, words):
    fit = played("human", 1.0, 1.0)
    speeds = [factor * fit.speed for factor in FACTORS]
    remarks = unmoved(fit, [reward(v) for v in speeds], speeds)
    assert len(remarks) == len(words) and all(word in line for word, line in zip(words, remarks))
    assert unmoved(fit, [reward(v) for v in speeds], [fit.speed for _ in FACTORS]) == []  # a fitness of positions


COMMAND = _RNG.uniform(0.5, 1.0, (10, 32)) * _RNG.choice([-1.0, 1.0], (10, 32))


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"bonus": lambda v: np.exp(-(v**2)), "track": lambda v: 9.0 * v}, ["the term bonus is largest"]),
        ({"clearance": lambda v: np.exp(-np.tanh(2 * np.abs(v))), "track": lambda v: 9.0 * v}, ["the term clearance"]),
        ({"tiny": lambda v: 0.01 * np.exp(-(v**2)), "track": lambda v: 9.0 * v}, []),
        ({"effort": lambda v: -(v**2), "track": lambda v: 9.0 * v}, []),  # a penalty
        ({"track": lambda v: np.exp(-((COMMAND - v) ** 2) / 0.25), "effort": lambda v: -0.01 * v**2}, []),
        ({"effort": lambda v: -(v**2), "alive": lambda v: 0 * v + 1}, ["the reward is largest"]),
        ({"pose": lambda v: 0 * v + 1}, []),
    ],
)
@pytest.mark.parametrize("slow", [0.1, 3.0])
def test_bonus_for_standing_still_is_named_where_the_fitter_policy_moves(terms, words, slow):
    fit, unfit = played("human", 1.0, 1.0), played("untrained", slow, 0.0)
    values = {name: [term(factor * fit.speed) for factor in FACTORS] for name, term in terms.items()}
    remarks = still_remarks(fit, unfit, [sum(parts) for parts in zip(*values.values())], values)
    assert len(remarks) == (len(words) if slow < 1 else 0)
    assert all(word in line for word, line in zip(words, remarks))


def test_standing_still_is_right_where_the_stiller_episodes_are_the_fitter_ones():
    """As of a pole that a policy begins to balance: it moves more than the untrained one, and best when it does not."""
    fit, unfit = played("human", 1.0, 1.0), played("untrained", 0.1, 0.0)
    values = [-((factor * fit.speed) ** 2) + 1.0 for factor in FACTORS]
    for sign, count in ((1.0, 1), (-1.0, 0)):
        one = replace(fit, fitness=sign * fit.mean(fit.speed))
        assert len(still_remarks(one, unfit, values, {})) == count
