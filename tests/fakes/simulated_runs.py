"""Simulated runs whose truth is known: how often a ranking's statements about them are right.

``benchmarks/measure.py designs`` has more designs, and more runs of each.
"""

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.ranking import Ranked, rank
from envcoder_bench.results.rows import Result
from envcoder_bench.results.statistics import UNBOUNDED, success_interval
from envcoder_bench.tasks.base import HUMAN

EPISODES = 64
RATE = (0.0, 1.0)  # bounds of a success rate
Facts = dict[str, Any]
Draw = Callable[[np.random.Generator, int, int], np.ndarray]  # (candidates, seeds, episodes) fitness


def seed_of(*parts: object) -> int:
    """Return a seed that depends on what is simulated alone."""
    return zlib.crc32(repr(parts).encode())


def success(rate: float, correlation: float = 0.0) -> Draw:
    """Return runs whose episodes succeed with ``rate``; seeds differ by a beta distribution with this correlation."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> np.ndarray:
        chance = np.full((candidates, seeds, 1), rate)
        if correlation:
            total = (1 - correlation) / correlation
            chance = rng.beta(rate * total, (1 - rate) * total, chance.shape)
        return (rng.random((candidates, seeds, EPISODES)) < chance).astype(float)

    return draw


def normal(seeds_sd: float, mean: float = 0.0) -> Draw:
    """Return runs with normal seeds, and episodes with a deviation of 1 around them."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> np.ndarray:
        own = mean + seeds_sd * rng.standard_normal((candidates, seeds, 1))
        return own + rng.standard_normal((candidates, seeds, EPISODES))

    return draw


def bimodal(share: float, rate: float = 0.95) -> Draw:
    """Return runs in which a share of the seeds learns and then succeeds with ``rate``; the others never succeed."""

    def draw(rng: np.random.Generator, candidates: int, seeds: int) -> np.ndarray:
        learned = rng.random((candidates, seeds, 1)) < share
        return (learned & (rng.random((candidates, seeds, EPISODES)) < rate)).astype(float)

    return draw


CASES: dict[str, tuple[Draw, float, tuple[float, float]]] = {  # how it is drawn, the true fitness, its bounds
    **{f"success rate {p}": (success(p), p, RATE) for p in (0.5, 0.9, 0.98, 0.995)},
    **{f"success rate {p}, seeds differ": (success(p, 0.1), p, RATE) for p in (0.5, 0.9, 0.98)},
    "normal, seeds alike": (normal(0.0), 0.0, UNBOUNDED),
    "normal, seeds differ": (normal(1.0), 0.0, UNBOUNDED),
    "bimodal, half of the seeds learn": (bimodal(0.5), 0.475, RATE),
    "bimodal, 60 % learn": (bimodal(0.6), 0.57, RATE),
    "bimodal, 80 % learn": (bimodal(0.8), 0.76, RATE),
    "bimodal, bounds unknown": (bimodal(0.6), 0.57, UNBOUNDED),
}


def ranking(episodes: np.ndarray, bounds: tuple[float, float]) -> list[Ranked]:
    """Rank the candidates of a run; the first is the human baseline."""
    rows, evaluation = [], {}
    for k, seeds in enumerate(episodes):
        name = HUMAN if k == 0 else f"c{k:02d}"
        for seed, own in enumerate(seeds.tolist()):
            _, low, high = success_interval(own, bounds) if len(seeds) == 1 else (math.nan,) * 3  # of one seed only
            rows.append(Result(name, seed, "ok", math.fsum(own) / len(own), low, high, episodes=len(own)))
            evaluation[name, seed] = tuple(own)
    return rank(rows, bounds, evaluation)


def equal_candidates(case: str, candidates: int, seeds: int, runs: int) -> Facts:
    """Simulate runs whose candidates are all as good as the human baseline; return how often something false is said.

    ``marked`` is the share of runs with any "!", ``covered`` that of 95 % intervals with the truth, ``narrowest`` the
    width of the narrowest interval.
    """
    draw, truth, bounds = CASES[case]
    rng = np.random.default_rng(seed_of(case, candidates, seeds))
    marked, covered, widths = 0, 0, []
    for _ in range(runs):
        ranked = ranking(draw(rng, candidates + 1, seeds), bounds)
        marked += any(row.significant for row in ranked)
        known = [row for row in ranked if not math.isnan(row.fitness_ci_low)]
        widths += [row.fitness_ci_high - row.fitness_ci_low for row in known]
        slack = 1e-9
        covered += sum(row.fitness_ci_low - slack <= truth <= row.fitness_ci_high + slack for row in known)
    return {
        "case": case, "candidates": candidates, "seeds": seeds, "runs": runs, "marked": marked / runs,
        "covered": covered / max(1, len(widths)), "narrowest": min(widths, default=math.nan),
    }  # fmt: skip


def power(candidates: int, seeds: int, runs: int) -> Facts:
    """Return how often a candidate that is one deviation of seeds above human is marked, and by paired t-tests."""
    from scipy import stats

    from envcoder_bench.results.statistics import corrected

    rng = np.random.default_rng(seed_of("power", candidates, seeds))
    marked, paired = 0, 0
    for _ in range(runs):
        episodes = normal(1.0)(rng, candidates + 1, seeds)
        episodes[1] += 1.0
        marked += next(row.significant for row in ranking(episodes, UNBOUNDED) if row.candidate == "c01")
        means = episodes.mean(axis=2)
        found: Any = stats.ttest_rel(means[1:], means[:1], axis=1)
        paired += corrected(found.pvalue.tolist())[0] < 0.05
    return {
        "case": "one deviation of seeds above human", "candidates": candidates, "seeds": seeds, "runs": runs,
        "marked": marked / runs, "paired": paired / runs,
    }  # fmt: skip


def beside_failing(alive: int, failing: int, seeds: int, runs: int) -> Facts:
    """Return how often intervals of differences to the first candidate have the truth, and those of paired t-tests.

    ``alive`` candidates succeed with a rate of 0.3, with which seeds differ; ``failing`` ones never do.
    """
    from scipy import stats

    rng = np.random.default_rng(seed_of("failing", alive, failing, seeds))
    covered, paired = [], []
    for _ in range(runs):
        draws = [success(0.3, 0.1)(rng, alive, seeds), np.zeros((failing, seeds, EPISODES))]
        means = np.concatenate(draws).mean(axis=2)
        names = [f"c{k}" for k in range(alive + failing)]
        fitness = {name: dict(enumerate(own.tolist())) for name, own in zip(names, means)}
        found = FitnessModel(fitness, None, RATE, EPISODES).differences(names[0], names[1:])
        for k, difference in enumerate(found, 1):
            truth = 0.0 if k < alive else 0.3
            covered.append(difference.low <= truth <= difference.high)
            gaps = means[0] - means[k]
            half = stats.t.ppf(0.975, seeds - 1) * gaps.std(ddof=1) / math.sqrt(seeds)
            paired.append(abs(gaps.mean() - truth) <= half)
    return {
        "case": f"differences of rate 0.3 to {alive - 1} equal, {failing} failing",
        "candidates": alive + failing, "seeds": seeds, "runs": runs,
        "covered": float(np.mean(covered)), "paired_covered": float(np.mean(paired)),
    }  # fmt: skip
