"""Statistics of the fitness of seeds and episodes: intervals, tests, and how sure the first place is.

Seeds are paired: groups with the same seed meet the same random numbers in training and in the episodes of evaluations.
So differences are taken seed by seed, and the bootstrap draws the same seeds and episodes for all candidates.
"""

from __future__ import annotations

import functools
import math
from typing import Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from envcoder_bench.report.episodes import Evaluation

NAN = math.nan
UNBOUNDED = (-math.inf, math.inf)
DRAWS = 2000  # of the bootstrap
Interval = Tuple[float, float, float]  # estimate, low, high
Strata = Dict[str, List[float]]  # scores of the runs of each task


# Student's t


def t_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's t is farther from 0 than ``t``."""
    from scipy.special import stdtr  # slow to import, and --check does not need it

    return float(2.0 * stdtr(freedom, -abs(t)))


def t_95(degrees_of_freedom: int) -> float:
    """Return the two-sided 95 % point of Student's t. Raises ValueError for less than one degree of freedom."""
    if degrees_of_freedom < 1:
        raise ValueError("an interval needs at least two values")
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, 0.975))


def mean_interval(values: Sequence[float], bounds: tuple[float, float] = UNBOUNDED) -> Interval:
    """Return mean and 95 % interval by Student's t ``(mean, low, high)``; NaN if there are too few values.

    The interval is cut to ``bounds``, within which the mean must be, so that it keeps its level.
    """
    n = len(values)
    if n == 0:
        return NAN, NAN, NAN
    mean = math.fsum(values) / n
    if n == 1:
        return mean, NAN, NAN
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    half = t_95(n - 1) * deviation / math.sqrt(n)
    return mean, max(mean - half, bounds[0]), min(mean + half, bounds[1])


def success_interval(values: Sequence[float], bounds: tuple[float, float] = UNBOUNDED) -> Interval:
    """Return ``mean_interval`` of successes and failures, which are the bounds; exact where all are the same.

    There the deviation is 0, although the others may be possible. The interval then ends at the mean with which n such
    episodes have a chance of 2.5 % (Clopper and Pearson, 1934).
    """
    mean, low, high = mean_interval(values, bounds)
    least, greatest = bounds
    if len(values) > 1 and low == high and mean in bounds and math.isfinite(greatest - least):
        width = (greatest - least) * (1.0 - 0.025 ** (1.0 / len(values)))
        return (mean, mean, mean + width) if mean == least else (mean, mean - width, mean)
    return mean, low, high


def welch_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the difference of two means, ``second`` minus ``first``, that are not paired, and Welch's 95 % interval.

    The interval is NaN if either has a single value, or if nothing varies.
    """
    means, squares, freedom = [], [], []
    for values in (first, second):
        mean = math.fsum(values) / len(values)
        means.append(mean)
        freedom.append(len(values) - 1)
        variance = math.fsum((x - mean) ** 2 for x in values) / freedom[-1] if freedom[-1] else NAN
        squares.append(variance / len(values))
    mean, total = means[1] - means[0], sum(squares)
    if not total > 0:  # NaN for a single value
        return mean, NAN, NAN
    degrees = total**2 / sum(square**2 / own for square, own in zip(squares, freedom))
    half = t_95(max(1, int(degrees))) * math.sqrt(total)
    return mean, mean - half, mean + half


def paired_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the paired t-test that the mean difference is 0; NaN for less than two."""
    n = len(differences)
    if n < 2:
        return NAN
    mean = math.fsum(differences) / n
    variance = math.fsum((x - mean) ** 2 for x in differences) / (n - 1)
    if variance == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return t_tail(mean / math.sqrt(variance / n), n - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for the number of comparisons (Holm, 1979); NaN are left out and stay NaN.

    Rejecting where the result is below 0.05 errs anywhere with a probability of at most 0.05.
    """
    known = sorted((p, k) for k, p in enumerate(p_values) if not math.isnan(p))
    adjusted, largest = [NAN] * len(p_values), 0.0
    for place, (p, k) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - place) * p))
        adjusted[k] = largest
    return adjusted


# the bootstrap; definitions of Agarwal et al., "Deep RL at the edge of the statistical precipice" (2021), rliable


def iqm(values: Sequence[float]) -> float:
    """Return the interquartile mean: the mean without the lowest and the highest quarter (rounded down)."""
    ordered = np.sort(np.asarray(values, dtype=float).ravel())
    cut = int(0.25 * len(ordered))
    return float(ordered[cut : len(ordered) - cut].mean())


def probability_of_improvement(first: Strata, second: Strata) -> float:
    """Return the probability that a run of ``first`` is better than one of ``second``, the mean over their tasks.

    Of each task, the share of all pairs of runs; ties count a half (Mann and Whitney's U).
    """
    shares = []
    for task in first:
        x, y = np.asarray(first[task], float)[:, None], np.asarray(second[task], float)[None, :]
        shares.append(float(((x > y) + 0.5 * (x == y)).mean()))
    return math.fsum(shares) / len(shares)


def bootstrap(estimate: Callable[..., float], *groups: Strata, paired: bool = False, draws: int = DRAWS) -> Interval:
    """Return an estimate and its 95 % percentile interval by the stratified bootstrap.

    Runs are drawn with replacement within each task. A percentile of estimates is within the bounds of the scores.

    Args:
        estimate: a function of the groups.
        groups: scores of runs by task.
        paired: whether the k-th runs of all groups belong together, as those of one seed, and are drawn together.
    """
    rng = np.random.default_rng(0)
    arrays = [{task: np.asarray(scores, float) for task, scores in group.items()} for group in groups]
    found = []
    for _ in range(draws):
        drawn: list[dict[str, np.ndarray]] = [{} for _ in arrays]
        for task, scores in arrays[0].items():
            shared = rng.integers(len(scores), size=len(scores))
            for group, own in zip(arrays, drawn):
                n = len(group[task])
                own[task] = group[task][shared if paired else rng.integers(n, size=n)]
        found.append(estimate(*drawn))
    low, high = np.percentile(found, (2.5, 97.5))
    return estimate(*groups), float(low), float(high)


def pooled_iqm(scores: Strata) -> float:
    """Return the interquartile mean over the runs of all tasks."""
    return iqm(np.concatenate([np.asarray(own, float) for own in scores.values()]))  # type: ignore[arg-type]


# the first place


def paired_table(evaluation: Evaluation, names: Sequence[str]) -> np.ndarray:
    """Return the fitness of episodes ``(names, seeds, episodes)``; NaN where a candidate lacks the seed or episode."""
    seeds = sorted({seed for _, seed in evaluation})
    longest = max(map(len, evaluation.values()), default=0)
    table = np.full((len(names), len(seeds), longest), np.nan)
    for place, name in enumerate(names):
        for k, seed in enumerate(seeds):
            own = evaluation.get((name, seed), ())
            table[place, k, : len(own)] = own
    return table


def chances_of_best(evaluation: Evaluation, names: Sequence[str], draws: int = DRAWS) -> dict[str, float]:
    """Return the probability of each candidate that it is the best, by the bootstrap over seeds and their episodes.

    Seeds are drawn with replacement, then episodes of each drawn seed, the same for all candidates; the candidate with
    the highest mean over the drawn seeds wins, and equals share. A few seeds vary less than all that could be, so that
    the probability of the first is then too high; of a single seed it leaves out how much seeds differ.

    Args:
        evaluation: the episodes' fitness by candidate and seed; the k-th episodes of a seed have the same beginning.
        names: the candidates.
    """
    table = paired_table(evaluation, names)
    return dict(zip(names, _shares_of_wins(table.tobytes(), table.shape, draws))) if table.size else {}


@functools.lru_cache(maxsize=1)  # the end of a run ranks the same episodes several times
def _shares_of_wins(content: bytes, shape: tuple[int, ...], draws: int) -> tuple[float, ...]:
    """Return the share of the draws that each candidate of a ``paired_table`` wins."""
    table = np.frombuffer(content).reshape(shape)
    count, seeds, episodes = shape
    rng = np.random.default_rng(0)
    known = np.isfinite(table)
    values = np.where(known, table, 0.0)
    wins = np.zeros(count)
    for _ in range(draws):
        total, number = np.zeros(count), np.zeros(count)
        for k in rng.integers(seeds, size=seeds):
            drawn = np.bincount(rng.integers(episodes, size=episodes), minlength=episodes)
            weight = known[:, k] @ drawn
            total += np.where(weight > 0, values[:, k] @ drawn / np.maximum(weight, 1), 0.0)
            number += weight > 0
        means = np.where(number > 0, total / np.maximum(number, 1), -np.inf)
        first = means == means.max()
        wins += first / first.sum()
    return tuple(float(won / draws) for won in wins)


def spearman(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return Spearman's rank correlation over the names that both have; NaN if it is undefined. Equals share ranks."""
    import pandas as pd  # slow to import, and --check does not need it

    both = [name for name in first if name in second]
    if len(both) < 2:
        return NAN
    ranks = pd.DataFrame({"first": [first[name] for name in both], "second": [second[name] for name in both]}).rank()
    return float(ranks.corr().iloc[0, 1])
