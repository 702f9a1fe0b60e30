"""Which candidates a run says to be hacked, in simulated runs whose truth is known."""

import math
import zlib
from dataclasses import replace

import numpy as np
import pytest

from envcoder_bench.results.hacks import hacked
from envcoder_bench.results.logs import Point
from envcoder_bench.results.rows import Result

T = np.arange(1, 11) / 10  # the evaluations
RISE = 1 - np.exp(-5 * T)


def honest(rng, seeds, noise):
    """Fitness and return ``(seeds, evaluations)`` of candidates that are not hacked."""
    shapes = {
        "learns": (0.8 * RISE, 9 * RISE),
        "has long learned": (0.8 + 0 * T, 9 + T),  # and still gets rid of penalties
        "does not learn": (0.2 + 0 * T, 2 * RISE),
        "curriculum": (0.8 * RISE, 9 - 5 * T),
        "easier episodes": (0.6 * RISE, 9 * T),
        "collapses": (0.8 * RISE * (T < 0.8), 9 * RISE * (T < 0.8)),
        "ends episodes early": (0.7 * RISE, -5 * np.abs(T - 0.5)),
        "sparse": (0.2 + 0.6 * (rng.uniform(0.1, 1.2, (seeds, 1)) < T), 9 * RISE),
    }
    wide = {"unsteady": (0.5 * RISE, 9 * RISE, 5 * noise)}
    for name, (fitness, returns, *more) in {**shapes, **wide}.items():
        scale = more[0] if more else noise * rng.uniform(0.2, 2)
        seed_noise, point_noise = rng.normal(0, scale, (seeds, 1)), rng.normal(0, scale, (seeds, len(T)))
        yield name, fitness + seed_noise + point_noise, returns + rng.normal(0, 0.5, (seeds, len(T)))


HACKS = {
    "rises, then falls": (0.8 * RISE * (1 - 0.8 * T**2), 9 * T),
    "falls from the first": (0.5 - 0.4 * T, 100 * RISE),
    "below untrained at once": (0.02 + 0 * T, -200 + 150 * RISE),
}


def simulated(rng, seeds, noise, hacks=(), human=1.0):
    rows, points = [], []
    courses = [*honest(rng, seeds, noise), ("human", np.tile(human * RISE, (seeds, 1)), np.tile(9 * RISE, (seeds, 1)))]
    courses += [(name, *(x + rng.normal(0, noise, (seeds, len(T))) for x in HACKS[name])) for name in hacks]
    for name, fitness, returns in courses:
        for seed in range(seeds):
            rows.append(Result(name, seed, "ok", fitness[seed, -1]))
            points += [
                Point(name, seed, k, 100 * k, f, 9.0, {}, r)
                for k, (f, r) in enumerate(zip(fitness[seed].tolist(), returns[seed].tolist()), 1)
            ]
    rows += [Result("untrained", seed, "ok", 0.2 + rng.normal(0, noise)) for seed in range(seeds)]
    return rows, points


def run_of(case, *hacks, noise=0.03, seeds=3):
    return simulated(np.random.default_rng(zlib.crc32(repr(case).encode())), seeds, noise, hacks)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_honest_candidates_are_marked_in_few_runs(seeds):
    runs, noise = 60, 0.1
    marked = [hacked(*run_of((k, seeds, noise), noise=noise, seeds=seeds), False) for k in range(runs)]
    assert sum(map(bool, marked)) / runs <= 0.08 + 3 * math.sqrt(0.08 * 0.92 / runs)


@pytest.mark.parametrize("rises", [False, True])
def test_a_candidate_of_which_one_seed_does_not_fall_is_not_marked(rises):
    name = "rises, then falls"
    rows, points = run_of("one seed", name, noise=0.02, seeds=6)
    if rises:  # the mean of the six falls surely nevertheless
        rows = [replace(row, fitness=0.7) if row.key == (name, 0) else row for row in rows]
        points = [
            replace(point, fitness=0.7) if (point.candidate, point.seed, point.iteration) == (name, 0, 10) else point
            for point in points
        ]
    assert list(hacked(rows, points, False)) == ([] if rises else [name])


@pytest.mark.parametrize("name", HACKS)
def test_hacks_are_marked_with_their_numbers(name):
    reasons = hacked(*run_of(name, name, noise=0.02, seeds=4), False)
    assert list(reasons) == [name]
    assert "while the return rose" in reasons[name] or "is below the untrained policy's" in reasons[name]


def test_one_seed_and_a_return_that_does_not_rise_are_not_marked():
    rows, points = run_of("quiet", *HACKS, noise=0.01)
    assert set(hacked(rows, points, False)) == set(HACKS)
    assert not hacked([r for r in rows if r.seed == 0], [p for p in points if p.seed == 0], False)
    in_one_seed = [replace(p, shaped_return=-p.shaped_return if p.seed == 1 else p.shaped_return) for p in points]
    assert not hacked(rows, in_one_seed, False)


def test_last_evaluation_is_left_out_where_its_episodes_are_longer():
    rows, points = run_of("longer", noise=0.01)
    points = [
        replace(p, fitness=p.fitness / 3, shaped_return=p.shaped_return + 5) if p.iteration == 10 else p for p in points
    ]
    assert hacked(rows, points, False) and not hacked(rows, points, True)


def test_policy_that_needs_the_coarse_step_is_marked():
    rows, points = run_of("coarse", noise=0.01)
    finer = [replace(r, half_step_fitness=r.fitness - 0.01 * r.seed - 0.5 * (r.candidate == "learns")) for r in rows]
    assert list(hacked(finer, points, False)) == ["learns"]
    assert hacked(finer, [], False)["learns"].startswith("with half the physics step its fitness is 0.")
    assert not hacked(rows, [], False)


def test_nothing_left_of_a_small_fitness_is_a_fall_where_the_fitness_has_a_least_value():
    rows, points = run_of("floor", "below untrained at once", noise=0.001)
    shift = {"untrained": -0.14, "below untrained at once": -0.01}  # to 0.06 and 0.01, of a run from 0 to 0.9
    rows = [replace(row, fitness=row.fitness + shift.get(row.candidate, 0.0)) for row in rows]
    assert not hacked(rows, points, False)
    assert list(hacked(rows, points, False, (0.0, 1.0))) == ["below untrained at once"]
    assert not hacked(rows, points, False, (0.0, 1.0), other_actions=["below untrained at once"])
