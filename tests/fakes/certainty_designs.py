"""Designs of simulated runs whose truth is known: the human baseline and candidates, by the fitness of their seeds.

``EQUAL`` designs have candidates that equal the human baseline, ``DIFFERENT`` ones a best candidate. Those that are
``blind`` were written before the model was changed; the others broke the statistics once, or are those that it assumes.
``tests/results/test_certainty.py`` simulates few of their runs, ``benchmarks/measure.py designs`` many.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.statistics import LEVEL, UNBOUNDED, corrected

RATE = (0.0, 1.0)
EPISODES = 64
LOOKS = (2, 3, 5, 8, 12)  # seeds of a run that is extended until something is marked
Facts = dict[str, Any]
Run = tuple[np.ndarray, np.ndarray]  # (1 + candidates,) true fitness; (1 + candidates, seeds) fitness, human first
Draw = Callable[[np.random.Generator, int, int], Run]


@dataclass(frozen=True)
class Design:
    """How runs are drawn, the bounds of their fitness, and whether others wrote it without knowing the model.

    ``failed`` is the fitness of the untrained policy in a run without bounds, NaN in one without its row.
    """

    draw: Draw
    bounds: tuple[float, float] = RATE
    blind: bool = False
    failed: float = math.nan


def _equal(truth: float, fitness: np.ndarray) -> Run:
    return np.full(len(fitness), truth), fitness


# candidates that equal the human baseline


def learns_or_not(share: float, level: float = 0.9, noise: float = 0.0) -> Draw:
    """Return runs with a steady human; a candidate's seeds have ``level`` with probability ``share``, else 0."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
        fitness = level * (rng.random((1 + candidates, seeds)) < share)
        fitness[0] = level * share
        return _equal(level * share, fitness * (1 + noise * rng.standard_normal(fitness.shape)))

    return draw


def one_learns_or_not(share: float, which: int = -1) -> Draw:
    """Return runs in which all are steady but one, by default the last candidate, whose seeds learn or not."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
        fitness = np.full((1 + candidates, seeds), 0.9 * share)
        fitness[which] = 0.9 * (rng.random(seeds) < share)
        return _equal(0.9 * share, fitness * (1 + 0.005 * rng.standard_normal(fitness.shape)))

    return draw


def normal_seeds(deviation: float, mean: float = 0.5) -> Draw:
    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
        return _equal(mean, mean + deviation * rng.standard_normal((1 + candidates, seeds)))

    return draw


def two_groups(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Two groups of candidates, each with effects of seeds of its own."""
    effects = 0.1 * rng.standard_normal((2, seeds))
    return _equal(
        0.5, 0.5 + effects[np.arange(1 + candidates) % 2] + 0.02 * rng.standard_normal((1 + candidates, seeds))
    )


def different_ways(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Equal means: steady, half of the seeds, a rare failure, uniform, rare success."""
    shape = (seeds,)
    ways = [
        lambda: 0.5 + 0.01 * rng.standard_normal(shape),
        lambda: (rng.random(shape) < 0.5).astype(float),
        lambda: np.where(rng.random(shape) < 0.9, 5 / 9, 0.0),
        lambda: rng.random(shape),
        lambda: np.where(rng.random(shape) < 0.1, 1.0, 4 / 9),
    ]
    return _equal(0.5, np.stack([ways[k % len(ways)]() for k in range(1 + candidates)]))


def rare_failures(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """One seed in ten fails, of human, too."""
    fitness = np.where(rng.random((1 + candidates, seeds)) < 0.9, 0.9, 0.05)
    return _equal(0.9 * 0.9 + 0.1 * 0.05, fitness * (1 + 0.02 * rng.standard_normal(fitness.shape)))


def growing(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Log-normal seeds."""
    return _equal(1.0, np.exp(0.5 * rng.standard_normal((1 + candidates, seeds)) - 0.125))


# blind


def u_against_flat(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    fitness = rng.beta(0.3, 0.3, (1 + candidates, seeds))
    fitness[0] = rng.random(seeds)
    return _equal(0.5, fitness)


def ceiling(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Gaps from a ceiling are exponential."""
    return _equal(0.95, 1.0 - np.minimum(rng.exponential(0.05, (1 + candidates, seeds)), 1.0))


def heavy_tails(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    return _equal(0.0, rng.standard_t(3, (1 + candidates, seeds)))


def hard_seeds(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Each seed has a noise of its own for all."""
    return _equal(5.0, 5.0 + np.exp(rng.standard_normal(seeds)) * rng.standard_normal((1 + candidates, seeds)))


def common_gain(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Seeds multiply the fitness of all."""
    gain = 1.0 + 0.3 * rng.standard_normal(seeds)
    return _equal(3.0, 3.0 * gain + 0.1 * rng.standard_normal((1 + candidates, seeds)))


def few_episodes(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    return _equal(0.97, rng.binomial(64, 0.97, (1 + candidates, seeds)) / 64)


def plateaus(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Seeds end at one of three plateaus; human at the middle one."""
    fitness = rng.choice([0.1, 0.5, 0.9], size=(1 + candidates, seeds)) + 0.02 * rng.standard_normal(
        (1 + candidates, seeds)
    )
    fitness[0] = 0.5 + 0.02 * rng.standard_normal(seeds)
    return _equal(0.5, fitness)


def rare_collapse(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    fitness = np.where(rng.random((1 + candidates, seeds)) < 0.95, 0.8 / 0.95, 0.0)
    fitness[0] = 0.8
    return _equal(0.8, fitness * (1 + 0.01 * rng.standard_normal(fitness.shape)))


def rare_discovery(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    fitness = np.where(rng.random((1 + candidates, seeds)) < 0.9, 0.4, 0.9)
    fitness[0] = 0.45
    return _equal(0.45, fitness * (1 + 0.01 * rng.standard_normal(fitness.shape)))


def mutants(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Pairs of candidates are nearly the same."""
    pairs = rng.standard_normal((candidates // 2 + 1, seeds))
    fitness = pairs[np.arange(1 + candidates) // 2] + 0.1 * rng.standard_normal((1 + candidates, seeds))
    return _equal(0.0, fitness)


def counts(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    return _equal(2.0, rng.poisson(2.0, (1 + candidates, seeds)).astype(float))


def costs(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    return _equal(-200.0, -rng.gamma(2.0, 100.0, (1 + candidates, seeds)))


def clipped(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    draws = np.minimum(0.95 + 0.1 * rng.standard_normal((1 + candidates, seeds)), 1.0)
    z = 0.5  # (1 - 0.95) / 0.1; the mean of a normal distribution that is cut to the ceiling
    cdf, pdf = 0.5 * (1 + math.erf(z / math.sqrt(2))), math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return _equal(0.95 * cdf - 0.1 * pdf + 1.0 - cdf, draws)


def noisy_human(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    fitness = 0.5 + 0.02 * rng.standard_normal((1 + candidates, seeds))
    fitness[0] = rng.random(seeds)
    return _equal(0.5, fitness)


def one_wild(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    fitness = rng.standard_normal((1 + candidates, seeds))
    fitness[-1] *= 10
    return _equal(0.0, fitness)


def two_bimodals(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Human has 0.6 with a share of 0.8 of its seeds, candidates 0.96 with a half; else 0."""
    fitness = 0.96 * (rng.random((1 + candidates, seeds)) < 0.5)
    fitness[0] = 0.6 * (rng.random(seeds) < 0.8)
    return _equal(0.48, fitness)


def saturated(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    gaps = np.where(rng.random((1 + candidates, seeds)) < 0.15, 0.002, 0.0)
    return _equal(1.0 - 0.15 * 0.002, 1.0 - gaps)


def laplace(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    return _equal(0.0, rng.laplace(0.0, 1.0, (1 + candidates, seeds)) + 3 * rng.standard_normal(seeds))


# blind, of 2026-11-29: the fitness of candidates with this true fitness


Seeds = Callable[[np.random.Generator, np.ndarray, int], np.ndarray]


def medians(rng: np.random.Generator, truth: np.ndarray, seeds: int) -> np.ndarray:
    """The median of 63 episodes, which are exponential of a candidate's, and uniform of human's."""
    middle = sum(1 / k for k in range(32, 64))  # expected, of exponential episodes
    episodes = rng.exponential(1.0, (len(truth), seeds, 63)) - middle
    episodes[0] = rng.uniform(-1.0, 1.0, (seeds, 63))
    return truth[:, None] + np.median(episodes, axis=2) + 0.2 * rng.standard_normal((len(truth), seeds))


def crashes(rng: np.random.Generator, truth: np.ndarray, seeds: int) -> np.ndarray:
    """A seed of a candidate is lost with a probability of its own, up to a half; one is left."""
    fitness = truth[:, None] + rng.standard_normal((len(truth), seeds))
    lost = rng.random(fitness.shape) < rng.uniform(0.0, 0.5, (len(truth), 1))
    lost[np.arange(len(truth)), rng.integers(seeds, size=len(truth))] = lost[0] = False
    return np.where(lost, np.nan, fitness)


def wild_human(rng: np.random.Generator, truth: np.ndarray, seeds: int) -> np.ndarray:
    """Human's seeds have the heavy tails of Student's t with 2 degrees of freedom."""
    fitness = truth[:, None] + rng.standard_normal((len(truth), seeds))
    fitness[0] = truth[0] + rng.standard_t(2, seeds)
    return fitness


def drifts(rng: np.random.Generator, truth: np.ndarray, seeds: int) -> np.ndarray:
    """The fitness drifts with the number of the seed, and each candidate's has a slope of its own."""
    slopes = 3.0 + rng.standard_normal((len(truth), 1))
    return truth[:, None] + slopes * np.linspace(-1.0, 1.0, seeds) + 0.3 * rng.standard_normal((len(truth), seeds))


def sixteenths(rng: np.random.Generator, truth: np.ndarray, seeds: int) -> np.ndarray:
    """Fitness is rounded to sixteenths, the deviation of seeds."""
    return np.round(16.0 * truth[:, None] + rng.standard_normal((len(truth), seeds))) / 16.0


LATER: dict[str, Seeds] = {
    "medians of episodes": medians, "seeds that crash": crashes, "heavy tails of human": wild_human,
    "drift over seeds": drifts, "rounded to 1/16": sixteenths,
}  # fmt: skip


SPREADS = {"medians of episodes": 0.3, "rounded to 1/16": 0.06}  # of the true fitness; others 1


def at(seeds_of: Seeds, spread: float = 0.0) -> Design:
    """Return runs of candidates whose true fitness has this deviation."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
        truth = spread * rng.standard_normal(1 + candidates)
        return truth, seeds_of(rng, truth, seeds)

    return Design(draw, UNBOUNDED, blind=True)


EQUAL: dict[str, Design] = {
    **{f"learns or not, {p}": Design(learns_or_not(p)) for p in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)},
    "learns or not, 0.7, with noise": Design(learns_or_not(0.7, noise=0.02)),
    "learns or not, 0.7, bounds unknown": Design(learns_or_not(0.7, noise=0.02), UNBOUNDED),
    "learns or not, 0.7, untrained known": Design(learns_or_not(0.7, noise=0.02), UNBOUNDED, failed=0.0),
    "one learns or not, 0.7": Design(one_learns_or_not(0.7)),
    "human learns or not, 0.7": Design(one_learns_or_not(0.7, which=0)),
    "normal": Design(normal_seeds(1.0), UNBOUNDED),
    "normal within bounds": Design(normal_seeds(0.05)),
    "two groups with effects of seeds": Design(two_groups, UNBOUNDED),
    "equal means by different ways": Design(different_ways),
    "equal means by different ways, bounds unknown": Design(different_ways, UNBOUNDED, failed=0.0),
    "rare failures": Design(rare_failures),
    "spreads that grow": Design(growing, UNBOUNDED),
    "u against flat": Design(u_against_flat, blind=True),
    "ceiling": Design(ceiling, blind=True),
    "heavy tails": Design(heavy_tails, UNBOUNDED, blind=True),
    "hard seeds": Design(hard_seeds, UNBOUNDED, blind=True),
    "common gain": Design(common_gain, UNBOUNDED, blind=True),
    "few episodes": Design(few_episodes, blind=True),
    "plateaus": Design(plateaus, blind=True),
    "rare collapse": Design(rare_collapse, blind=True),
    "rare discovery": Design(rare_discovery, blind=True),
    "mutants": Design(mutants, UNBOUNDED, blind=True),
    "counts": Design(counts, (0.0, math.inf), blind=True),
    "costs": Design(costs, UNBOUNDED, blind=True),
    "clipped at a ceiling": Design(clipped, blind=True),
    "noisy human": Design(noisy_human, blind=True),
    "one wild": Design(one_wild, UNBOUNDED, blind=True),
    "two bimodals": Design(two_bimodals, blind=True),
    "saturated": Design(saturated, blind=True),
    "saturated, bounds unknown": Design(saturated, UNBOUNDED, blind=True, failed=0.0),
    "Laplace with a common effect": Design(laplace, UNBOUNDED, blind=True),
    **{name: at(seeds_of) for name, seeds_of in LATER.items()},
}


# a best candidate


def normal_truth(spread: float) -> Draw:
    """Return runs with a true fitness of this deviation, in that of seeds."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
        truth = spread * rng.standard_normal(1 + candidates)
        return truth, truth[:, None] + rng.standard_normal((1 + candidates, seeds))

    return draw


def cluster(learned: float = 0.4, gap: float = 0.01, deviation: float = 0.04) -> Draw:
    """Return runs in which a share of the candidates learns nearly equally well, and the others do not."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
        good = rng.random(1 + candidates) < learned
        good[rng.integers(1 + candidates)] = True
        truth = np.where(good, 0.85 + gap * rng.standard_normal(1 + candidates), rng.uniform(0.05, 0.5, 1 + candidates))
        return truth, np.clip(truth[:, None] + deviation * rng.standard_normal((1 + candidates, seeds)), 0.0, 1.0)

    return draw


def near_the_bound(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Success rates near 1 with seeds that differ."""
    truth = 1.0 - 0.5 * rng.random(1 + candidates) ** 3
    chance = rng.beta(truth[:, None] * 20, (1 - truth[:, None]) * 20 + 1e-9, (1 + candidates, seeds))
    return truth, rng.binomial(64, np.clip(chance, 0.0, 1.0)) / 64


def growing_truth(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = np.exp(0.7 * rng.standard_normal(1 + candidates))
    return truth, truth[:, None] * np.exp(0.3 * rng.standard_normal((1 + candidates, seeds)) - 0.045)


# blind


def outlier(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = 0.3 * rng.standard_normal(1 + candidates)
    truth[rng.integers(1 + candidates)] += 4.0
    return truth, truth[:, None] + rng.standard_normal((1 + candidates, seeds))


def ladder(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = rng.permutation(np.linspace(0.2, 0.8, 1 + candidates))
    return truth, np.clip(truth[:, None] + 0.06 * rng.standard_normal((1 + candidates, seeds)), 0.0, 1.0)


def long_tail_below(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = 10.0 - rng.exponential(2.0, 1 + candidates)
    return truth, truth[:, None] + rng.standard_normal((1 + candidates, seeds))


def long_tail_above(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = rng.exponential(1.0, 1 + candidates)
    return truth, truth[:, None] + rng.standard_normal((1 + candidates, seeds))


def three_clusters(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = rng.choice([1.0, 4.0, 8.0], 1 + candidates) + 0.2 * rng.standard_normal(1 + candidates)
    return truth, truth[:, None] + rng.standard_normal((1 + candidates, seeds)) + rng.standard_normal(seeds)


def shares_that_learn(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    """Candidates differ in the share of their seeds that learn."""
    share = rng.beta(2.0, 2.0, 1 + candidates)
    return 0.9 * share, 0.9 * (rng.random((1 + candidates, seeds)) < share[:, None])


def skewed_spreads(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = rng.standard_normal(1 + candidates)
    own = np.exp(0.7 * rng.standard_normal((1 + candidates, 1)))
    return truth, truth[:, None] + own * rng.standard_normal((1 + candidates, seeds))


def nearly_equal(rng: np.random.Generator, candidates: int, seeds: int) -> Run:
    truth = 0.6 + 0.002 * rng.standard_normal(1 + candidates)
    return truth, np.clip(truth[:, None] + 0.1 * rng.standard_normal((1 + candidates, seeds)), 0.0, 1.0)


DIFFERENT: dict[str, Design] = {
    **{f"normal, spread {x:g}": Design(normal_truth(x), UNBOUNDED) for x in (0.3, 1.0, 2.0)},
    "cluster of good ones": Design(cluster()),
    "cluster of equal good ones": Design(cluster(gap=0.002)),
    "cluster of good ones, far": Design(cluster(gap=0.03)),
    "cluster, bounds unknown": Design(cluster(), UNBOUNDED),
    "near the bound": Design(near_the_bound),
    "spreads that grow": Design(growing_truth, UNBOUNDED),
    "outlier": Design(outlier, UNBOUNDED, blind=True),
    "ladder": Design(ladder, blind=True),
    "long tail below": Design(long_tail_below, UNBOUNDED, blind=True),
    "long tail above": Design(long_tail_above, UNBOUNDED, blind=True),
    "three clusters": Design(three_clusters, UNBOUNDED, blind=True),
    "shares that learn": Design(shares_that_learn, blind=True),
    "skewed spreads": Design(skewed_spreads, UNBOUNDED, blind=True),
    "nearly equal": Design(nearly_equal, blind=True),
    **{name: at(seeds_of, SPREADS.get(name, 1.0)) for name, seeds_of in LATER.items()},
}


# what is said of them


def _names(candidates: int) -> list[str]:
    return ["human", *(f"c{k:03d}" for k in range(candidates))]


def model(fitness: np.ndarray, bounds: tuple[float, float], failed: float = math.nan) -> FitnessModel:
    """Return the model of a run; the first row is the human baseline's."""
    by_seed = ({seed: x for seed, x in enumerate(row) if x == x} for row in fitness.tolist())
    return FitnessModel(dict(zip(_names(len(fitness) - 1), by_seed)), None, bounds, EPISODES, failed)


def _random(*parts: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def equal_family(name: str, candidates: int, seeds: int, runs: int) -> Facts:
    """Simulate runs of candidates that equal human; return how often something false is said.

    ``marked``: runs with any "!"; ``better``: runs in which the interval of the first candidate, as of the verdict of a
    search, is above 0, which is so if its p-value is below 5 %; ``covered``: intervals of a fitness with the truth, of
    every fourth run, as they take longer.
    """
    design, rng = EQUAL[name], _random(name, candidates, seeds)
    marked, better, covered = 0, 0, []
    for k in range(runs):
        truth, fitness = design.draw(rng, candidates, seeds)
        run = model(fitness, design.bounds, design.failed)
        human, *others = run.names
        p_values = run.p_values(human, others)
        marked += any(p < LEVEL for p in corrected(p_values))
        better += bool(p_values[0] < LEVEL and run.difference(run.names[1], human).mean > 0)
        if k % 4 == 0:
            intervals = map(run.interval, run.names)
            covered += [low - 1e-9 <= x <= high + 1e-9 for x, (_, low, high) in zip(truth, intervals)]
    return {
        "case": name, "blind": design.blind, "candidates": candidates, "seeds": seeds, "runs": runs,
        "marked": marked / runs, "better": better / runs, "covered": float(np.mean(covered)),
    }  # fmt: skip


def different_family(name: str, candidates: int, seeds: int, runs: int) -> Facts:
    """Simulate runs with a best candidate; return how often what is said of the first is right.

    ``first``: runs whose first is the best; ``alone``: runs that name a single contender, ``right``: those of them in
    which it is the best; ``held``: runs whose contenders hold the best; ``covered``: intervals of what is expected of
    the first on new seeds with the truth; ``lucky``, ``expected``: how far the mean of the first, and what is expected,
    are above the truth.
    """
    design, rng = DIFFERENT[name], _random(name, candidates, seeds)
    is_first, right, held, covered, lucky, expected = [], [], [], [], [], []
    for _ in range(runs):
        truth, fitness = design.draw(rng, candidates - 1, seeds)
        run = model(fitness, design.bounds, design.failed)
        whole = np.isfinite(fitness).all(axis=1)  # those that lost a seed are behind
        first, best = (int(np.where(whole, x, -np.inf).argmax()) for x in (fitness.mean(axis=1), truth))
        contenders = run.contenders()
        is_first.append(first == best)
        held += [run.names[best] in contenders] * bool(contenders)  # none if only one lost no seed
        right += [run.names[best] in contenders] * (len(contenders) == 1)
        mean, low, high = run.expected[run.names[first]]
        covered.append(low - 1e-9 <= truth[first] <= high + 1e-9)
        lucky.append(float(fitness[first].mean() - truth[first]))
        expected.append(mean - truth[first])
    return {
        "case": name, "blind": design.blind, "candidates": candidates, "seeds": seeds, "runs": runs,
        "first": float(np.mean(is_first)), "alone": len(right), "right": sum(right), "held": float(np.mean(held)),
        "covered": float(np.mean(covered)), "lucky": float(np.mean(lucky)), "expected": float(np.mean(expected)),
    }  # fmt: skip


def extended_family(name: str, candidates: int, runs: int) -> Facts:
    """Simulate runs that are extended, as in LOOKS, until a candidate is marked; return how often that is so."""
    design, rng = EQUAL[name], _random(name, candidates, LOOKS)
    marked = 0
    for _ in range(runs):
        _, fitness = design.draw(rng, candidates, LOOKS[-1])
        for look, seeds in enumerate(LOOKS, 1):
            run = model(fitness[:, :seeds], design.bounds, design.failed)
            human, *others = run.names
            if any(p < LEVEL for p in corrected(run.p_values(human, others), look)):
                marked += 1
                break
    return {"case": name, "candidates": candidates, "looks": list(LOOKS), "runs": runs, "marked": marked / runs}
