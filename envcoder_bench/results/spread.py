"""The variance of the fitness between the seeds of each candidate, pooled over the candidates of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST_PRIOR = 4.5  # degrees of freedom of the pooled spread, where candidates differ most in their spread
LEAST_SPREAD = 0.1  # variance, as a share of the large ones, of candidates that count for others
TWO_SEEDS = 0.5  # share of independent candidates that is assumed where there are two seeds
SEEDS_WORTH = 3.0  # degrees of freedom that one more seed of a candidate is worth at most


@dataclass(frozen=True)
class Spread:
    """Variances between the seeds of each candidate, in units of ``FitnessModel._scale``, see ``pooled_spread``.

    Attributes:
        variances, degrees: ``(candidates,)`` moderated variances, and their degrees of freedom.
        pooled: ``(candidates,)`` variances with which each is pooled.
        total: degrees of freedom of the variance of those that vary, together.
    """

    variances: np.ndarray
    degrees: np.ndarray
    pooled: np.ndarray
    total: float


def pooled_spread(deviations: np.ndarray, freedom: np.ndarray, total: float) -> Spread:
    """Return the variance of each candidate: the mean of its own and a pooled one, by degrees of freedom (Smyth, 2004).

    The spreads of candidates may differ strongly. Where seeds hardly differ, as those of a candidate that always fails,
    this says nothing of the other candidates: their variances are pooled without it. It is itself pooled with all,
    because equal seeds may be luck. And the pooled variance counts the less, the less probable an own one is so far
    above it by chance (Phipson et al., 2016).

    The degrees of freedom are bounded, because the mean of few seeds is not normal: with some seeds a candidate learns,
    with others it does not.

    Args:
        deviations: ``(candidates, seeds)``, NaN where a candidate lacks the seed.
        freedom: ``(candidates,)`` degrees of freedom of each variance.
        total: those of the pooled one.
    """
    from scipy.special import fdtrc  # slow to import, and --check does not need it

    seeds = np.isfinite(deviations).sum(axis=1)
    own = seed_variances(deviations)
    varied = varies(own, freedom)
    share = freedom[varied].sum() / freedom.sum()
    pools = [_pool(own[varied], freedom[varied], share * total), _pool(own, freedom, total)]
    pooled, prior, limit = np.where(varied, *np.array(pools)[:, :, None])
    above = fdtrc(np.maximum(freedom, 0.5), limit, own / np.maximum(pooled, 1e-300))
    prior = prior * np.minimum(2 * above, 1.0)
    degrees = np.minimum(np.minimum(prior + freedom, limit), SEEDS_WORTH * np.maximum(seeds - 1, 1))
    return Spread((prior * pooled + freedom * own) / (prior + freedom), np.maximum(degrees, 1.0), pooled, pools[0][2])


def _pool(own: np.ndarray, freedom: np.ndarray, total: float) -> tuple[float, float, float]:
    """Return a pooled variance, how many degrees of freedom it counts beside a candidate's own, and its own ones.

    The more alike the variances, the more: as those of an F distribution with their spread (Smyth, 2004).
    """
    pooled = float((freedom * own).sum() / freedom.sum())
    prior = total
    has_two = freedom > 0
    if has_two.sum() > 1 and pooled > 0:
        squared = float(np.var(own[has_two] / pooled, ddof=1))  # squared coefficient of variation
        each = float(freedom[has_two].mean())
        if squared * each > 2:  # else the variances differ no more than by chance
            prior = min(total, max(LEAST_PRIOR, (4 * squared * each + 2 * each - 4) / (squared * each - 2)))
    return pooled, prior, max(total, 1.0)


def varies(variances: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return which candidates have seeds that differ: not, say, one that always fails. One of a single seed counts.

    Args:
        variances: ``(candidates,)`` of their seeds.
        freedom: ``(candidates,)`` degrees of freedom of each variance, 0 for a single seed.
    """
    has_two = freedom > 0
    if not (has_two & (variances > 0)).any():
        return np.ones(len(variances), dtype=bool)
    # a mean in which variances count by their size; by chance alone it would be 1 + 2 / freedom times the plain one
    relative = variances / variances.max()
    large = (freedom * relative**2).sum() / (freedom * relative).sum() / (1 + 2 / freedom[has_two].mean())
    return (relative >= LEAST_SPREAD * large) | ~has_two


def seed_variances(deviations: np.ndarray) -> np.ndarray:
    """Return the variance of each candidate, of deviations ``(candidates, seeds)``, NaN where it lacks the seed."""
    return np.nansum(deviations**2, axis=1) / np.maximum(np.isfinite(deviations).sum(axis=1) - 1, 1)


def independent_share(deviations: np.ndarray) -> float:
    """Return the share of independent candidates, of deviations ``(candidates, seeds)`` without what all share.

    Some candidates may share more with a seed than others do, as the variants of one file. Their pooled variance then
    has fewer degrees of freedom: their number is divided by the sum of the squared covariances of candidates, in that
    of as many independent ones (Satterthwaite, 1946).
    """
    count, freedom = len(deviations), deviations.shape[1] - 1
    if count < 2:
        return 1.0
    if freedom < 2:  # two seeds do not tell
        return TWO_SEEDS
    gram = deviations.T @ deviations / freedom
    # squares of the covariances of candidates, without what they have by chance
    squares = float((gram**2).sum()) - float(np.trace(gram)) ** 2 / freedom
    squares *= freedom**2 / ((freedom - 1) * (freedom + 2))
    variances = (deviations**2).sum(axis=1) / freedom
    independent = float((variances**2).sum()) * freedom / (freedom + 2) * count / (count - 1)
    return min(1.0, independent / squares) if squares > 0 else 1.0


def known_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Return means along an axis without NaN; 0 where all are NaN."""
    return np.nansum(values, axis=axis) / np.maximum(np.isfinite(values).sum(axis=axis), 1)
