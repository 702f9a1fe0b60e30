"""Intervals and tests of samples, corrections for several tests, and rank correlation.

``fitness_model.FitnessModel`` is what a run knows of its candidates. The definitions are in docs/reading_a_run.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Evaluation = dict[tuple[str, int], tuple[float, ...]]  # the episodes' fitness by candidate and seed

NAN = math.nan
UNBOUNDED = (-math.inf, math.inf)
Interval = tuple[float, float, float]  # estimate, low, high
BySeed = Mapping[int, float]

LEVEL = 0.05  # of tests and intervals
FIRST_LOOK, SECOND_LOOK = 0.04, 0.008  # of a run's first tests, and after its first extension; then halves

# single samples


def mean_or_nan(values: Sequence[float]) -> float:
    """Return the mean, correctly rounded; NaN of no values, of inf with -inf, and of a sum that overflows."""
    try:
        return statistics.fmean(values)
    except (ValueError, OverflowError):
        return NAN


def t_quantile(freedom: Any, probability: Any = 1 - LEVEL / 2) -> Any:
    """Return quantiles of Student's t; by default the ends of a 95 % interval. Numbers and arrays are broadcast."""
    from scipy.special import stdtrit  # slow to import, and --check does not need it

    return stdtrit(freedom, probability)


def t_probability(freedom: Any, t: Any) -> Any:
    """Return the probability that Student's t is at most ``t``. Numbers and arrays are broadcast."""
    from scipy.special import stdtr  # slow to import, and --check does not need it

    return stdtr(freedom, t)


def mean_interval(values: Sequence[float], bounds: tuple[float, float] = UNBOUNDED) -> Interval:
    """Return mean and 95 % interval by Student's t ``(mean, low, high)``; NaN if there are too few values.

    The interval is cut to ``bounds``, within which the mean must be, so that it keeps its level.
    """
    n = len(values)
    if n == 0:
        return NAN, NAN, NAN
    mean = statistics.fmean(values)
    if n == 1:
        return mean, NAN, NAN
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    half = float(t_quantile(n - 1)) * deviation / math.sqrt(n)
    return mean, max(mean - half, bounds[0]), min(mean + half, bounds[1])


def success_interval(values: Sequence[float], bounds: tuple[float, float] = UNBOUNDED) -> Interval:
    """Return ``mean_interval`` of episodes; exact where all have the least fitness or all the greatest.

    There the deviation is 0, although the others may be possible. The interval then ends at the mean with which n such
    episodes have a chance of 2.5 % (Clopper and Pearson, 1934).
    """
    mean, low, high = mean_interval(values, bounds)
    least, greatest = bounds
    if len(values) > 1 and low == high and mean in bounds and math.isfinite(greatest - least):
        width = (greatest - least) * (1.0 - 0.025 ** (1.0 / len(values)))
        return (mean, mean, mean + width) if mean == least else (mean, mean - width, mean)
    return mean, low, high


def half_width(mean: float, low: float, high: float) -> float:
    """Return the longer half of an interval; NaN if there is none."""
    return math.nan if math.isnan(low) or math.isnan(high) else max(mean - low, high - mean)


# several tests


def holm(p_values: Sequence[float] | np.ndarray) -> list[float]:
    """Return p-values adjusted for the number of comparisons (Holm, 1979); NaN are left out and stay NaN.

    Rejecting where the result is below 0.05 errs anywhere with a probability of at most 0.05.
    """
    p = np.asarray(p_values, dtype=float)
    ascending = np.argsort(p, kind="stable")[: int(np.isfinite(p).sum())]  # NaN are last
    adjusted = np.full(len(p), NAN)
    factors = np.arange(len(ascending), 0, -1)
    adjusted[ascending] = np.minimum(np.maximum.accumulate(factors * p[ascending]), 1.0)
    return adjusted.tolist()


def look_level(looks: int) -> float:
    """Return the level of the tests at the k-th look at a run: 5 % are spent over all looks.

    A run that is extended until it has a mark is tested several times. The levels of the looks are 4 %, 0.8 %, and
    halves of it; as the looks share seeds, any of them errs with a probability of 5 %.
    """
    return FIRST_LOOK if looks <= 1 else SECOND_LOOK * 0.5 ** (looks - 2)


def corrected(p_values: Sequence[float] | np.ndarray, looks: int = 1) -> list[float]:
    """Return p-values corrected for the number of comparisons by ``holm``, and for looks, see ``look_level``.

    Rejecting where the result is below 0.05 errs anywhere, and at any look, with a probability of at most 0.05.
    """
    return [min(p * LEVEL / look_level(looks), 1.0) if p == p else NAN for p in holm(p_values)]


# candidates


def paired_table(evaluation: Evaluation, names: Sequence[str], seeds: Sequence[int] | None = None) -> np.ndarray:
    """Return the fitness of episodes ``(names, seeds, episodes)``; NaN where a candidate lacks the seed or episode."""
    seeds = sorted({seed for _, seed in evaluation}) if seeds is None else seeds
    longest = max(map(len, evaluation.values()), default=0)
    table = np.full((len(names), len(seeds), longest), np.nan)
    for k, name in enumerate(names):
        for s, seed in enumerate(seeds):
            episodes = evaluation.get((name, seed), ())
            table[k, s, : len(episodes)] = episodes
    return table


def spearman(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return Spearman's rank correlation over the names that both have; NaN if it is undefined. Equals share ranks."""
    import pandas as pd  # slow to import, and --check does not need it

    both = pd.DataFrame({"first": first, "second": second}).dropna()
    return float(both.rank().corr().iloc[0, 1])


# fixed policies, by episodes


def welch(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """Compare the means of two independent samples; None where they do not vary.

    Returns:
        ``statistic``, ``degrees_of_freedom`` and ``p`` of Welch's t-test, and Cohen's d of the pooled deviation.
    """
    from scipy import stats

    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    row: dict[str, Any] = dict(statistic=None, degrees_of_freedom=None, p=None, cohens_d=None)
    if min(len(x), len(y)) < 2:
        return row
    pooled = ((len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)) / (len(x) + len(y) - 2)
    # identical episodes, but for rounding, say nothing of a spread
    if pooled <= (1e-12 * max(abs(x.mean()), abs(y.mean()), 1e-12)) ** 2:
        return row
    test: Any = stats.ttest_ind(x, y, equal_var=False)
    row.update(statistic=float(test.statistic), degrees_of_freedom=float(test.df), p=float(test.pvalue))
    row["cohens_d"] = float((x.mean() - y.mean()) / math.sqrt(pooled))
    return row


def proportions(successes: tuple[int, int], trials: tuple[int, int]) -> tuple[float | None, float | None]:
    """Return statistic and p-value of the two-proportion z-test with pooled variance; None where rates are 0 or 1."""
    from scipy import stats

    pooled = sum(successes) / sum(trials)
    if not 0.0 < pooled < 1.0:
        return None, None
    deviation = math.sqrt(pooled * (1.0 - pooled) * (1.0 / trials[0] + 1.0 / trials[1]))
    z = (successes[0] / trials[0] - successes[1] / trials[1]) / deviation
    return z, float(2.0 * stats.norm.sf(abs(z)))


def rate_interval(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a rate (Wilson, 1927)."""
    from scipy.stats import binomtest

    if not trials:
        return 0.0, 1.0
    interval = binomtest(successes, trials).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)
