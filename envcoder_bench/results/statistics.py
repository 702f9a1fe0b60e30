"""How sure the numbers of a run are: intervals, differences, and the probability of being the best.

``FitnessModel`` is the one model of what a run knows: episodes within seeds within candidates. Rankings, comparisons of
runs and searches use it; ``eval-policies``, whose policies are given, compares episodes alone. The definitions are in
docs/reading_a_run.md.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

Evaluation = dict[tuple[str, int], tuple[float, ...]]  # the episodes' fitness by candidate and seed

NAN = math.nan
UNBOUNDED = (-math.inf, math.inf)
Interval = tuple[float, float, float]  # estimate, low, high
BySeed = Mapping[int, float]

LEVEL = 0.05  # of tests and intervals
SURE = 0.95  # the contenders hold the best candidate with this probability
LEAST_PRIOR = 4.5  # degrees of freedom of the pooled spread, where candidates differ most in their spread
LEAST_SPREAD = 0.1  # variance, as a share of the large ones, of candidates that count for others
ROUNDING = 1e-12  # least variance, as a share of that with what candidates share
SEEDS_WORTH = 3.0  # degrees of freedom that one more seed of a candidate is worth at most
MOST_COMPARED = 200  # best candidates among which the probability of being the best is divided
ROUGHENING = 2  # steps from a normal distribution of the candidates' fitness towards the observed one


# single samples


def mean_or_nan(values: Sequence[float]) -> float:
    """Return the mean, correctly rounded; NaN of no values."""
    return statistics.fmean(values) if values else NAN


def t_95(degrees_of_freedom: float) -> float:
    """Return the two-sided 95 % point of Student's t. Raises ValueError for less than one degree of freedom."""
    if degrees_of_freedom < 1:
        raise ValueError("an interval needs at least two values")
    from scipy.special import stdtrit  # slow to import, and --check does not need it

    return float(stdtrit(degrees_of_freedom, 1 - LEVEL / 2))


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
    half = t_95(n - 1) * deviation / math.sqrt(n)
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


# candidates of a run


@dataclass(frozen=True)
class Difference:
    """The fitness of a candidate minus that of another.

    Attributes:
        mean: over the seeds that both have; without common seeds, the difference of their means.
        low, high: 95 % interval; NaN if the spread of seeds is unknown.
        p: two-sided p-value that the true difference is 0; NaN as the interval.
        seeds: number of common seeds.
        error, freedom: standard error of the mean, and its degrees of freedom; NaN as the interval.
    """

    mean: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    seeds: int = 0
    error: float = NAN
    freedom: float = NAN


@dataclass(frozen=True)
class _Spread:
    """Variances between the seeds of each candidate, in units of ``FitnessModel._scale``, see ``_spread``.

    Attributes:
        variances, degrees: ``(candidates,)`` moderated variances, and their degrees of freedom.
        pooled: ``(candidates,)`` variances with which each is pooled.
        total: degrees of freedom of the variance of those that vary, together.
    """

    variances: np.ndarray
    degrees: np.ndarray
    pooled: np.ndarray
    total: float


class FitnessModel:
    """What a run knows of the fitness of its candidates: episodes within seeds within candidates.

    Two or three seeds of a candidate say little of how much its seeds differ. So the spread of seeds is pooled over the
    candidates: each has its own variance, averaged with a pooled one, which counts the more the more alike the
    candidates' variances are, see ``_spread``; a difference has the sum of two. Where the fitness has bounds, variances
    are in units of m (1 - m), m being the mean between the bounds: a success rate near a bound varies less. No variance
    is below that of the mean of as many independent episodes. Differences are paired: what candidates share with a seed
    or an episode is left out, unless the seeds of one of the two hardly differ.

    With a single seed the spread is unknown, and there are no intervals, p-values and probabilities.

    Args:
        fitness: mean fitness of each candidate by seed.
        evaluation: the fitness of the episodes, by candidate and seed; the k-th ones of a seed begin alike.
        bounds: the least and the greatest fitness of an episode.
        episodes: number of episodes of a seed, of candidates that ``evaluation`` does not have.
    """

    def __init__(
        self,
        fitness: Mapping[str, BySeed],
        evaluation: Evaluation | None = None,
        bounds: tuple[float, float] = UNBOUNDED,
        episodes: int = 1,
    ) -> None:
        self.names = [name for name, by_seed in fitness.items() if by_seed]
        self._index = {name: k for k, name in enumerate(self.names)}
        self._seeds = sorted({seed for by_seed in fitness.values() for seed in by_seed})
        self._bounded = math.isfinite(bounds[1] - bounds[0]) and bounds[0] < bounds[1]
        self._low, self._width = (bounds[0], bounds[1] - bounds[0]) if self._bounded else (0.0, 1.0)
        # means, within 0 and 1 if there are bounds
        table = np.full((len(self.names), len(self._seeds)), NAN)
        for k, name in enumerate(self.names):
            for seed, value in fitness[name].items():
                table[k, self._seeds.index(seed)] = (value - self._low) / self._width
        self._fitness = table  # (candidates, seeds), within 0 and 1 if there are bounds
        self._count = np.isfinite(table).sum(axis=1)
        self._mean = _known_mean(table, 1)
        self._complete = self._count == len(self._seeds)
        # episodes
        episodes_of = evaluation or {}
        has_episodes = all((name, seed) in episodes_of for name in self.names for seed in fitness[name])
        self._episodes = paired_table(episodes_of, self.names, self._seeds) if has_episodes and self.names else None
        if self._episodes is not None:
            self._episodes = (self._episodes - self._low) / self._width
            self._total_episodes = np.isfinite(self._episodes).sum(axis=(1, 2))
        else:
            self._total_episodes = self._count * episodes
        # two more episodes, one at each bound, so that no success of n is not taken for none ever
        self._inner = (self._total_episodes * self._mean + 1) / (self._total_episodes + 2)
        self._scale = self._inner * (1 - self._inner) if self._bounded else np.ones(len(self.names))

    @property
    def has_spread(self) -> bool:
        """Whether any candidate has two seeds."""
        return bool((self._count > 1).any())

    def interval(self, name: str) -> Interval:
        """Return the mean fitness of a candidate over its seeds, and its 95 % interval; NaN if there is no spread.

        With bounds it is the interval of Korn and Graubard (1998): Clopper and Pearson's, of as many independent
        episodes as have the variance of the mean. Without, it is Student's.
        """
        k = self._index[name]
        low, high = self._intervals[:, k]
        return self._value(self._mean[k]), self._value(low), self._value(high)

    def difference(self, name: str, other: str) -> Difference:
        """Return the fitness of a candidate minus that of another, over the seeds that both have."""
        return self.differences(name, [other])[0]

    def differences(self, name: str, others: Sequence[str]) -> list[Difference]:
        """Return the fitness of a candidate minus those of others, each over the seeds that both have."""
        of_all = self._differences(self._index[name], np.array([self._index[other] for other in others], dtype=int))
        return [Difference(*row) for row in zip(*(column.tolist() for column in of_all))]

    def told_apart(self, names: Sequence[str]) -> np.ndarray:
        """Return which candidates differ beyond chance among all their pairs, by Holm's method: ``(n, n)`` bool."""
        index = np.array([self._index[name] for name in names], dtype=int)
        p_values = [self._differences(a, index[k:])[3] for k, a in enumerate(index, 1)]  # of all pairs, row by row
        apart = np.zeros((len(index), len(index)), dtype=bool)
        apart[np.triu_indices(len(index), 1)] = np.array(holm(np.concatenate([*p_values, np.empty(0)]))) < LEVEL
        return apart | apart.T

    def _differences(self, a: int, b: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the fields of ``Difference`` of candidate ``a`` minus each of ``b``, ``(n,)``."""
        gaps = self._fitness[a] - self._fitness[b]  # (n, seeds)
        seeds = np.isfinite(gaps).sum(axis=1)
        mean = np.where(seeds > 0, _known_mean(gaps, 1), self._mean[a] - self._mean[b])
        unknown = np.full(len(b), NAN)
        if self._raw is None:
            return mean * self._width, unknown, unknown, unknown, seeds, unknown, unknown
        from scipy.special import stdtr, stdtrit  # slow to import, and --check does not need it

        variance, freedom = np.where(seeds > 0, self._paired(a, b, seeds), self._unpaired(a, b))
        variance = np.where(variance > 0, variance, NAN)  # if nothing varies, nothing is known of chance
        half = stdtrit(freedom, 1 - LEVEL / 2) * np.sqrt(variance)
        low, high = mean - half, mean + half
        if self._bounded:
            low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
        p = 2.0 * stdtr(freedom, -np.abs(mean) / np.sqrt(variance))
        error = np.sqrt(variance) * self._width
        return mean * self._width, low * self._width, high * self._width, p, seeds, error, freedom

    @cached_property
    def chances(self) -> dict[str, float]:
        """The probability of each candidate that it is the best in truth, of those that have all seeds.

        Empirical Bayes. The means are Student's t around the true fitness, and the true fitness of the candidates comes
        from one distribution, which is estimated: a normal one, averaged over its width and then moved towards the
        observed values (Laird and Louis, 1991). So the first of many that are alike is not taken for the best because
        of its luck. Empty for a single candidate, or without a spread of seeds.
        """
        best = np.flatnonzero(self._complete)
        best = best[np.argsort(-self._mean[best], kind="stable")][:MOST_COMPARED]
        if len(best) < 2 or self._shared is None or self._raw is None:
            return {}
        raw, own = (
            np.maximum(spread.variances * self._scale / self._count, floor)[best]
            for spread, floor in zip((self._raw, self._shared), self._floors)
        )
        varied = self._varied[best]
        if varied.mean() < 0.5:
            own = raw
        elif not varied.all():  # what the others share with a seed sets them apart from these
            own[~varied] += np.maximum(raw - own, 0)[varied].mean()
        if not (own > 0).all():
            return {}
        shares = _shares_of_best(self._mean[best], own, self._shared.total)
        return {self.names[k]: float(share) for k, share in zip(best, shares)}

    def contenders(self) -> list[str]:
        """Return the fewest candidates that hold the best with a probability of SURE, the likeliest first."""
        ordered = sorted(self.chances.items(), key=lambda pair: -pair[1])
        names: list[str] = []
        total, last = 0.0, NAN
        for name, chance in ordered:
            if total >= SURE and chance < last - 1e-9:  # equals belong together
                break
            names.append(name)
            total, last = total + chance, chance
        return names

    def _value(self, share: float) -> float:
        return float(self._low + self._width * share)

    @cached_property
    def _deviations(self) -> np.ndarray:
        """``(candidates, seeds)`` deviations from a candidate's mean, in units of the root of its scale."""
        return (self._fitness - self._mean[:, None]) / np.sqrt(self._scale)[:, None]

    @cached_property
    def _varied(self) -> np.ndarray:
        """``(candidates,)`` which have seeds that differ, see ``_varies``."""
        return _varies(_variances(self._deviations), np.maximum(self._count - 1, 0))

    @cached_property
    def _raw(self) -> _Spread | None:
        """The spread of seeds, with what candidates share with a seed; None without two seeds."""
        if not self.has_spread:
            return None
        freedom = np.maximum(self._count - 1, 0)
        total = float(freedom.sum())
        whole = self._deviations[self._complete & self._varied]
        count, seeds = whole.shape
        if count > 1 and seeds > 1:
            # analysis of variance: what is shared has but seeds - 1 degrees of freedom (Satterthwaite, 1946)
            shared = whole.mean(axis=0)
            parts = (shared**2).sum() / (seeds - 1), ((whole - shared) ** 2).sum() / (count * (seeds - 1))
            squares = parts[0] ** 2 / (seeds - 1) + parts[1] ** 2 / ((count - 1) * (seeds - 1))
            if squares > 0:
                # of the candidates that vary: ``_spread`` takes their share of the total
                total *= sum(parts) ** 2 / squares / freedom[self._varied].sum()
        return _spread(self._deviations, freedom, total)

    @cached_property
    def _shared(self) -> _Spread | None:
        """The spread of seeds without what candidates share with a seed.

        That is the mean of those with all seeds, where two or more vary: one that always fails shares nothing.
        """
        varied = self._varied
        count = int((self._complete & varied).sum())
        if not self.has_spread or count < 2:
            return self._raw
        rest = self._deviations.copy()
        own = rest[varied] - rest[self._complete & varied].mean(axis=0)
        rest[varied] = (own - _known_mean(own, 1)[:, None]) * math.sqrt(count / (count - 1))
        freedom = np.maximum(self._count - 1, 0) * np.where(varied, (count - 1) / count, 1.0)
        spread = _spread(rest, freedom, float(freedom.sum()))
        assert self._raw is not None
        # of equal candidates nothing but rounding is left
        return replace(spread, variances=np.maximum(spread.variances, ROUNDING * self._raw.variances))

    @cached_property
    def _floors(self) -> tuple[np.ndarray, np.ndarray]:
        """``_floor`` of means, and of differences, which leave out what candidates share."""
        return self._floor(shared=False), self._floor(shared=True)

    def _floor(self, shared: bool) -> np.ndarray:
        """Return ``(candidates,)`` variances of means of independent episodes.

        ``shared`` leaves out what candidates share with an episode.
        """
        total = self._total_episodes
        if self._episodes is None:
            return self._scale / total if self._bounded else np.zeros(len(self.names))
        # deviations of episodes from their seed's mean, without what candidates share
        rest = self._episodes - _known_mean(self._episodes, 2)[:, :, None]
        varied = self._varied
        count = int((self._complete & varied).sum())
        if shared and count > 1:
            common = _known_mean(rest[self._complete & varied], 0)
            rest[varied] = (rest[varied] - common) * math.sqrt(count / (count - 1))
        # variance of one episode, with the two more of ``_inner``
        squares = np.nansum(rest**2, axis=(1, 2))
        variance = squares / np.maximum(total - self._count, 1)
        if self._bounded:
            variance = (total * variance + (1 - self._inner) ** 2 + self._inner**2) / (total + 2)
        return variance / total

    @cached_property
    def _intervals(self) -> np.ndarray:
        """``(2, candidates)`` ends of the intervals of the means."""
        spread = self._raw
        if spread is None:
            return np.full((2, len(self.names)), NAN)
        from scipy.special import stdtrit  # slow to import, and --check does not need it

        moderated = np.maximum(spread.variances, spread.pooled / 2)  # equal seeds may be luck
        variance = np.maximum(moderated * self._scale / self._count, self._floors[0])
        quantile = stdtrit(spread.degrees, 1 - LEVEL / 2)
        if self._bounded:
            return _proportion_interval(self._mean, self._scale / variance, self._count, quantile)
        half = np.where(variance > 0, quantile * np.sqrt(variance), NAN)
        return np.stack((self._mean - half, self._mean + half))

    def _paired(self, a: int, b: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return variances and degrees of freedom of mean differences over ``seeds`` common ones."""
        middle = (self._inner[a] + self._inner[b]) / 2
        scale = middle * (1 - middle) if self._bounded else np.ones(len(b))  # of both, if they are equal
        of_both = []
        for spread, floor in zip((self._shared, self._raw), reversed(self._floors)):
            assert spread is not None
            first, second = spread.variances[a], spread.variances[b]
            variance = np.maximum((first + second) * scale, first * self._scale[a] + second * self._scale[b])
            variance = np.maximum(variance / np.maximum(seeds, 1), floor[a] + floor[b])
            of_both.append((variance, np.minimum(spread.degrees[a], spread.degrees[b])))
        variance, degrees = np.where(self._varied[a] & self._varied[b], *np.array(of_both))
        return variance, degrees

    def _unpaired(self, a: int, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return variances and degrees of freedom of differences of two means without common seeds."""
        spread = self._raw
        assert spread is not None
        variance = np.maximum(spread.variances * self._scale / self._count, self._floors[0])
        return variance[a] + variance[b], np.minimum(spread.degrees[a], spread.degrees[b])


def _known_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Return means along an axis without NaN; 0 where all are NaN."""
    return np.nansum(values, axis=axis) / np.maximum(np.isfinite(values).sum(axis=axis), 1)


def _variances(deviations: np.ndarray) -> np.ndarray:
    """Return the variance of each candidate, of deviations ``(candidates, seeds)``, NaN where it lacks the seed."""
    return np.nansum(deviations**2, axis=1) / np.maximum(np.isfinite(deviations).sum(axis=1) - 1, 1)


def _varies(variances: np.ndarray, freedom: np.ndarray) -> np.ndarray:
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


def _spread(deviations: np.ndarray, freedom: np.ndarray, total: float) -> _Spread:
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
    own = _variances(deviations)
    varied = _varies(own, freedom)
    share = freedom[varied].sum() / freedom.sum()
    pools = [_pool(own[varied], freedom[varied], share * total), _pool(own, freedom, total)]
    pooled, prior, limit = np.where(varied, *np.array(pools)[:, :, None])
    above = fdtrc(np.maximum(freedom, 0.5), limit, own / np.maximum(pooled, 1e-300))
    prior = prior * np.minimum(2 * above, 1.0)
    degrees = np.minimum(np.minimum(prior + freedom, limit), SEEDS_WORTH * np.maximum(seeds - 1, 1))
    return _Spread((prior * pooled + freedom * own) / (prior + freedom), np.maximum(degrees, 1.0), pooled, pools[0][2])


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


def _proportion_interval(
    mean: np.ndarray, effective: np.ndarray, least: np.ndarray, quantile: np.ndarray
) -> np.ndarray:
    """Return ``(2, n)`` ends of the intervals of means between 0 and 1.

    Args:
        mean: ``(n,)`` means.
        effective: numbers of independent episodes whose mean has the same variance.
        least: their least number: that of seeds, of which each is then all 0 or all 1.
        quantile: of Student's t, with the degrees of freedom of the variances.
    """
    from scipy.special import betaincinv, ndtri  # slow to import, and --check does not need it

    # fewer episodes where the variance itself is uncertain, then Clopper and Pearson's beta quantiles
    count = np.maximum(effective, least) * (ndtri(1 - LEVEL / 2) / quantile) ** 2
    some, rest = np.maximum(mean * count, 1e-12), np.maximum((1 - mean) * count, 1e-12)
    low = np.where(mean > 1e-12, betaincinv(some, rest + 1, LEVEL / 2), 0.0)
    high = np.where(mean < 1 - 1e-12, betaincinv(some + 1, rest, 1 - LEVEL / 2), 1.0)
    return np.stack((np.minimum(low, mean), np.maximum(high, mean)))


def _shares_of_best(mean: np.ndarray, variance: np.ndarray, freedom: float) -> np.ndarray:
    """Return the probability of each candidate that its true fitness is the highest, see ``FitnessModel.chances``.

    Args:
        mean, variance: ``(n,)`` observed means and their variances.
        freedom: degrees of freedom of the variances.
    """
    # likelihood of the observed mean on a grid of true values, Student's t
    deviation = np.sqrt(variance)
    near = mean[:, None] + deviation[:, None] * np.linspace(-5.0, 5.0, 31)  # fine where each candidate may be
    grid = np.unique(np.concatenate((near.ravel(), np.linspace(near.min(), near.max(), 101))))
    distance = (mean[:, None] - grid) / deviation[:, None]
    log_likelihood = -0.5 * (freedom + 1) * np.log1p(distance**2 / freedom)
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    # the common distribution, moved towards the posteriors a few times
    prior = _normal_prior(mean, variance, grid) * np.gradient(grid)  # of each cell of the grid
    for _ in range(ROUGHENING):
        posterior = likelihood * prior
        prior = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
    posterior = likelihood * prior
    posterior /= posterior.sum(axis=1, keepdims=True)
    # the best: all others are below; their probabilities multiply
    below = np.log(np.maximum(np.cumsum(posterior, axis=1) - 0.5 * posterior, 1e-300))
    best = (posterior * np.exp(below.sum(axis=0) - below)).sum(axis=1)
    return best / best.sum()


def _normal_prior(mean: np.ndarray, variance: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return the density of true fitness on a grid: normal, averaged over its width given the observed means.

    The share of noise in the variance of the means is uniform a priori (Daniels, 1999).
    """
    noise = np.exp(np.linspace(-25.0, 0.0, 201)[:-1])  # log-spaced: the candidates may differ by far more than noise
    width = np.exp(np.log(variance).mean()) * (1 - noise) / noise  # variances of the true fitness
    total = variance + width[:, None]
    # for each width, the middle with the greatest likelihood, integrated out
    weight = 1 / total
    middle = (weight * mean).sum(axis=1) / weight.sum(axis=1)
    spread = ((mean - middle[:, None]) ** 2 * weight).sum(axis=1)
    log_likelihood = -0.5 * (np.log(total).sum(axis=1) + np.log(weight.sum(axis=1)) + spread)
    likelihood = noise * np.exp(log_likelihood - log_likelihood.max()) / np.sqrt(width)
    # mixture of the normal densities
    density = (likelihood[:, None] * np.exp(-0.5 * (grid - middle[:, None]) ** 2 / width[:, None])).sum(axis=0)
    return np.maximum(density, 1e-300)


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


def falls(changes: Mapping[str, BySeed]) -> dict[str, float]:
    """Return the p-value of each candidate that its mean change over seeds is 0 and not below, by a t-test.

    The p-values are adjusted for false discoveries (Benjamini and Hochberg, 1995): of those below 0.05, a share of 0.05
    is false on average. As of differences, falls and rises have half of the level each. The spread of seeds is pooled
    over the candidates as that of fitness, see ``_spread``.
    Candidates with less than two seeds are left out.
    """
    changes = {name: by_seed for name, by_seed in changes.items() if len(by_seed) > 1}
    if not changes:
        return {}
    from scipy.special import stdtr  # slow to import, and --check does not need it

    table = np.full((len(changes), max(map(len, changes.values()))), NAN)
    for row, by_seed in zip(table, changes.values()):
        row[: len(by_seed)] = list(by_seed.values())
    mean, count = np.nanmean(table, axis=1), np.isfinite(table).sum(axis=1)
    spread = _spread(table - mean[:, None], count - 1, float((count - 1).sum()))
    variance = spread.variances / count
    varies = variance > 0  # else nothing is known of chance
    t = mean[varies] / np.sqrt(variance[varies])
    p = np.minimum(2.0 * stdtr(spread.degrees[varies], t), 1.0)
    # the k-th smallest p-value times the number of tests over k, or a later one's if that is less
    order = np.argsort(p)
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    p[order] = np.minimum.accumulate(scaled[::-1])[::-1]
    return {name: float(x) for name, x in zip(np.array(list(changes))[varies].tolist(), p)}


def stabilized(fitness: float, bounds: tuple[float, float]) -> float:
    """Return the arcsine of the root of a fitness between its bounds, whose variance does not depend on the mean.

    Without bounds it is the fitness itself.
    """
    share = (fitness - bounds[0]) / (bounds[1] - bounds[0]) if math.isfinite(bounds[1] - bounds[0]) else NAN
    return fitness if math.isnan(share) else math.asin(math.sqrt(min(max(share, 0.0), 1.0)))


def spearman(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return Spearman's rank correlation over the names that both have; NaN if it is undefined. Equals share ranks."""
    import pandas as pd  # slow to import, and --check does not need it

    both = pd.DataFrame({"first": first, "second": second}).dropna()
    return float(both.rank().corr().iloc[0, 1])


# fixed policies, by episodes


def welch(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
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
    # identical episodes, but for rounding, are no sample of anything
    if pooled <= (1e-9 * max(abs(x.mean()), abs(y.mean()), 1e-12)) ** 2:
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


def half_width(mean: float, low: float, high: float) -> float:
    """Return the longer half of an interval; NaN if there is none."""
    return math.nan if math.isnan(low) or math.isnan(high) else max(mean - low, high - mean)
