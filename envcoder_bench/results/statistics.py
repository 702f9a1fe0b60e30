"""How sure the numbers of a run are: intervals, differences, and the probability of being the best.

``FitnessModel`` is the one model of what a run knows: episodes within seeds within candidates. Rankings, comparisons of
runs and searches use it; ``eval-policies``, whose policies are given, compares episodes alone. The definitions are in
docs/reading_a_run.md.
"""

from __future__ import annotations

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
FIRST_LOOK, SECOND_LOOK = 0.04, 0.008  # of a run's first tests, and after its first extension; then halves
# posterior probability of intervals and contenders that hold 95 %: the distribution of the candidates is estimated, too
SURE = 0.97
LEAST_PRIOR = 4.5  # degrees of freedom of the pooled spread, where candidates differ most in their spread
LEAST_SPREAD = 0.1  # variance, as a share of the large ones, of candidates that count for others
ROUNDING = 1e-12  # least variance, as a share of that with what candidates share
SEEDS_WORTH = 3.0  # degrees of freedom that one more seed of a candidate is worth at most
UNLIKE = 3  # other candidates that may be unlike the rest in what their seeds have not shown
MOST_COMPARED = 500  # best candidates among which the probability of being the best is divided
# distributions of the candidates' fitness: weight of a wide one, in candidates; the others count one each
CONCENTRATIONS = (math.inf, 20.0, 5.0, 1.0)
ALL_EQUAL = 1.0  # odds of equal candidates against each of them, before anything is observed
ROUGHENING = 5  # steps from the wide distribution towards the observed one
OWN = 1.5  # standard errors around its mean that an expected fitness allows for, whatever the others have
FINE = 4.0  # points of a grid in the deviation of the narrowest likelihood


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
        unseen: how far from the mean, towards 0, the truth may be by outcomes that the seeds have not shown, see
            ``FitnessModel.unseen``.
        worth: number of seeds that say so.
    """

    mean: float = NAN
    low: float = NAN
    high: float = NAN
    p: float = NAN
    seeds: int = 0
    error: float = NAN
    freedom: float = NAN
    unseen: float = 0.0
    worth: float = 1.0


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
    or an episode is left out, unless the seeds of one of the two hardly differ. With bounds, intervals and differences
    also allow for outcomes that the seeds may not have shown, see ``unseen``.

    With a single seed the spread is unknown, and there are no intervals, p-values and probabilities.

    Args:
        fitness: mean fitness of each candidate by seed.
        evaluation: the fitness of the episodes, by candidate and seed; the k-th ones of a seed begin alike.
        bounds: the least and the greatest fitness of an episode.
        episodes: number of episodes of a seed, of candidates that ``evaluation`` does not have.
        failed: the fitness of a seed that learns nothing, where there are no bounds; NaN if it is unknown.
    """

    def __init__(
        self,
        fitness: Mapping[str, BySeed],
        evaluation: Evaluation | None = None,
        bounds: tuple[float, float] = UNBOUNDED,
        episodes: int = 1,
        failed: float = NAN,
    ) -> None:
        self.names = [name for name, by_seed in fitness.items() if by_seed]
        self._index = {name: k for k, name in enumerate(self.names)}
        self._seeds = sorted({seed for by_seed in fitness.values() for seed in by_seed})
        self._bounded = math.isfinite(bounds[1] - bounds[0]) and bounds[0] < bounds[1]
        self._failed = NAN if self._bounded else failed
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
        self._known_posteriors: dict[bytes, tuple[np.ndarray, _Posteriors]] = {}
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

    def told_apart(self, names: Sequence[str], looks: int = 1) -> np.ndarray:
        """Return which candidates differ beyond chance among all their pairs: ``(n, n)`` bool; see ``corrected``."""
        index = np.array([self._index[name] for name in names], dtype=int)
        p_values = [self._differences(a, index[k:])[3] for k, a in enumerate(index, 1)]  # of all pairs, row by row
        p_values = corrected(np.concatenate([*p_values, np.empty(0)]), looks)
        apart = np.zeros((len(index), len(index)), dtype=bool)
        apart[np.triu_indices(len(index), 1)] = np.array(p_values) < LEVEL
        return apart | apart.T

    def unseen(self, name: str) -> float:
        """Return the share of seeds that may have an outcome unlike those seen, at 95 %; NaN if its size is unknown.

        With n seeds, none of which has another outcome, it is 1 - 0.05^(1 / n) (Clopper and Pearson, 1934). Where there
        are bounds, another outcome may be at one of them: intervals and differences allow for it. Candidates of a run
        count for each other, all but UNLIKE of them. Without bounds another outcome may be that of a seed that learns
        nothing, or the best of the run. One candidate alone of many that is unlike all others is not allowed for.
        """
        known = self._bounded or not math.isnan(self._failed)
        return float(self._unseen_share[self._index[name]]) if known and self.has_spread else NAN

    def _differences(self, a: int, b: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the fields of ``Difference`` of candidate ``a`` minus each of ``b``, ``(n,)``."""
        gaps = self._fitness[a] - self._fitness[b]  # (n, seeds)
        seeds = np.isfinite(gaps).sum(axis=1)
        mean = np.where(seeds > 0, _known_mean(gaps, 1), self._mean[a] - self._mean[b])
        unknown = np.full(len(b), NAN)
        if self._raw is None:
            nothing = np.zeros(len(b)), np.ones(len(b))
            return mean * self._width, unknown, unknown, unknown, seeds, unknown, unknown, *nothing
        from scipy.special import stdtr, stdtrit  # slow to import, and --check does not need it

        variance, freedom = np.where(seeds > 0, self._paired(a, b, seeds), self._unpaired(a, b))
        variance = np.where(variance > 0, variance, NAN)  # if nothing varies, nothing is known of chance
        # independent errors: the root of the sum of their squares (Zou and Donner, 2008)
        down, up = self._unseen
        squared = stdtrit(freedom, 1 - LEVEL / 2) ** 2 * variance
        less, more = down[a] ** 2 + up[b] ** 2, up[a] ** 2 + down[b] ** 2
        low, high = mean - np.sqrt(squared + less), mean + np.sqrt(squared + more)
        if self._bounded:
            low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
        unseen = np.where(mean > 0, less, more)
        p = 2.0 * stdtr(freedom, -np.sqrt(np.maximum(mean**2 - unseen, 0.0) / variance))
        seen = np.minimum(self._worth[a], self._worth[b])
        row = mean * self._width, low * self._width, high * self._width, p, seeds
        return *row, np.sqrt(variance) * self._width, freedom, np.sqrt(unseen) * self._width, seen

    @cached_property
    def chances(self) -> dict[str, float]:
        """The probability of each candidate that it is the best in truth, of those that have all seeds.

        Empty for a single candidate, or without a spread of seeds; see ``_posteriors``.
        """
        if self._shared is None:
            return {}
        index, posteriors = self._posteriors_of(self._complete)
        shares = np.zeros(len(index))
        for weight, density in posteriors.weighted:
            # all others are below; their probabilities multiply
            below = np.log(np.maximum(np.cumsum(density, axis=1) - 0.5 * density, 1e-300))
            best = (density * np.exp(below.sum(axis=0) - below)).sum(axis=1)
            shares += weight * best / best.sum()
        # a candidate that another one beats with every seed is not likelier than that one, however its seeds differ
        fitness = self._fitness[index]
        beats = (fitness[:, None] >= fitness).all(axis=2) & (fitness[:, None] > fitness).any(axis=2)
        shares = np.minimum(shares, np.where(beats, shares[:, None], 1.0).min(axis=0, initial=1.0))
        shares /= max(float(shares.sum()), 1e-300)
        return {self.names[k]: float(share) for k, share in zip(index, shares)}

    @cached_property
    def expected(self) -> dict[str, Interval]:
        """The fitness to be expected on new seeds, and its 95 % interval, of the best candidates.

        The mean of many that are alike is highest where seeds were lucky; this is the mean of the posterior. Empty as
        ``chances``; see ``_posteriors``.
        """
        if self._raw is None or self._shared is None:
            return {}
        index, posteriors = self._posteriors_of(self._count > 0)
        if not len(index):
            return {}
        grid = posteriors.grid
        density = sum(weight * each for weight, each in posteriors.weighted)
        cells = posteriors.cells
        # what all candidates share with their seeds moves them together
        common = (self._raw.variances - self._shared.variances) * self._scale / np.maximum(self._count, 1)
        common = 2.0 * math.sqrt(max(float(common[self._varied].mean()), 0.0)) if self._varied.any() else 0.0
        errors = OWN * np.sqrt(self._shared.variances * self._scale / np.maximum(self._count, 1))
        found: dict[str, Interval] = {}
        for k, probability in zip(index, np.asarray(density)):
            # the narrowest set that holds the truth, which reaches a bound where it is the likeliest
            likeliest = np.argsort(-probability / cells, kind="stable")
            kept = likeliest[: int(np.searchsorted(np.cumsum(probability[likeliest]), SURE)) + 1]
            mean = float(probability @ grid)
            first, last = kept.min(), kept.max()
            # one that is unlike the others is drawn to them too much
            low = min(grid[first] - cells[first] / 2, self._mean[k] - errors[k])
            high = max(grid[last] + cells[last] / 2, self._mean[k] + errors[k])
            low = mean - math.hypot(mean - low, common, self._unseen[0, k])
            high = mean + math.hypot(high - mean, common, self._unseen[1, k])
            if self._bounded:
                low, high = max(low, 0.0), min(high, 1.0)
            found[self.names[k]] = self._value(mean), self._value(low), self._value(high)
        return found

    def _posteriors_of(self, which: np.ndarray) -> tuple[np.ndarray, _Posteriors]:
        """Return the best of some candidates, by index, and their posteriors; none without a spread of seeds."""
        key = which.tobytes()
        if key not in self._known_posteriors:
            self._known_posteriors[key] = self._new_posteriors_of(which)
        return self._known_posteriors[key]

    def _new_posteriors_of(self, which: np.ndarray) -> tuple[np.ndarray, _Posteriors]:
        nothing = np.empty(0, dtype=int), _Posteriors(np.empty(0), np.empty(0), ())
        best = np.flatnonzero(which)
        best = best[np.argsort(-self._mean[best], kind="stable")][:MOST_COMPARED]
        if len(best) < 2 or self._shared is None or self._raw is None:
            return nothing
        raw, own = (
            np.maximum(spread.variances * self._scale / self._count, floor)[best]
            for spread, floor in zip((self._raw, self._shared), self._floors)
        )
        varied = self._varied[best]
        own = np.where(self._complete[best], own, raw)
        if varied.mean() < 0.5:
            own = raw
        elif not varied.all():  # what the others share with a seed sets them apart from these
            shared = np.maximum(raw - own, 0) / self._scale[best]
            own[~varied] += shared[varied].mean() * self._scale[best][~varied]
        if not (own > 0).all():
            return nothing
        scale = self._scale[best] if self._bounded else None
        return best, _posteriors(self._mean[best], own, self._shared.total, scale)

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
        spread = _spread(rest, freedom, float(freedom.sum()) * _independent(rest[self._complete & varied]))
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
            low, high = _proportion_interval(self._mean, self._scale / variance, self._count, quantile)
        else:
            half = np.where(variance > 0, quantile * np.sqrt(variance), NAN)
            low, high = self._mean - half, self._mean + half
        down, up = self._unseen
        low, high = self._mean - np.hypot(self._mean - low, down), self._mean + np.hypot(high - self._mean, up)
        return np.stack((np.maximum(low, 0.0), np.minimum(high, 1.0)) if self._bounded else (low, high))

    @cached_property
    def _unseen_share(self) -> np.ndarray:
        """``(candidates,)`` shares of seeds with outcomes that were not seen, at most, see ``unseen``."""
        return unseen_share(self._worth)

    @cached_property
    def _worth(self) -> np.ndarray:
        """``(candidates,)`` numbers of seeds that say what outcomes there are, others' included."""
        others = np.maximum(self._count.sum() - self._count - UNLIKE * self._count.max(initial=0), 0)
        return np.maximum(self._count + others, 1)

    @cached_property
    def _unseen(self) -> np.ndarray:
        """``(2, candidates)``: how far the truth may be below and above the mean by outcomes that were not seen."""
        low, high, most = 0.0, 1.0, 1.0
        if not self._bounded:
            if math.isnan(self._failed) or not len(self.names):
                return np.zeros((2, len(self.names)))
            low, high = min(self._failed, np.nanmin(self._fitness)), max(self._failed, np.nanmax(self._fitness))
            most = max((high - low) ** 2 / 4, 1e-300)  # variance
        # seeds that differ as much as they can have shown what there is
        hidden = np.maximum(1.0 - _variances(self._deviations) / most, 0.0)
        return np.stack((self._mean - low, high - self._mean)) * self._unseen_share * hidden

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


def unseen_share(seeds: np.ndarray) -> np.ndarray:
    """Return the share of seeds that may have an outcome that none of so many had, at 95 %."""
    return 1.0 - LEVEL ** (1.0 / seeds)


def _known_mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Return means along an axis without NaN; 0 where all are NaN."""
    return np.nansum(values, axis=axis) / np.maximum(np.isfinite(values).sum(axis=axis), 1)


def _variances(deviations: np.ndarray) -> np.ndarray:
    """Return the variance of each candidate, of deviations ``(candidates, seeds)``, NaN where it lacks the seed."""
    return np.nansum(deviations**2, axis=1) / np.maximum(np.isfinite(deviations).sum(axis=1) - 1, 1)


def _independent(deviations: np.ndarray) -> float:
    """Return the share of independent candidates, of deviations ``(candidates, seeds)`` without what all share.

    Some candidates may share more with a seed than others do, as the variants of one file. Their pooled variance then
    has fewer degrees of freedom: their number is divided by the sum of the squared covariances of candidates, in that
    of as many independent ones (Satterthwaite, 1946).
    """
    count, freedom = len(deviations), deviations.shape[1] - 1
    if count < 2 or freedom < 2:  # two seeds do not tell
        return 1.0
    gram = deviations.T @ deviations / freedom
    # squares of the covariances of candidates, without what they have by chance
    squares = float((gram**2).sum()) - float(np.trace(gram)) ** 2 / freedom
    squares *= freedom**2 / ((freedom - 1) * (freedom + 2))
    variances = (deviations**2).sum(axis=1) / freedom
    independent = float((variances**2).sum()) * freedom / (freedom + 2) * count / (count - 1)
    return min(1.0, independent / squares) if squares > 0 else 1.0


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


@dataclass(frozen=True)
class _Posteriors:
    """What is known of the true fitness of candidates.

    Attributes:
        grid, cells: ``(points,)`` values of the true fitness, and the widths of their cells.
        weighted: of each distribution that the candidates may come from its probability, and ``(candidates, points)``
            probabilities.
    """

    grid: np.ndarray
    cells: np.ndarray
    weighted: Sequence[tuple[float, np.ndarray]]


def _posteriors(mean: np.ndarray, variance: np.ndarray, freedom: float, scale: np.ndarray | None) -> _Posteriors:
    """Return the posteriors of the true fitness of candidates, by empirical Bayes.

    The means are Student's t around the true fitness; within bounds, distances are roots of the deviance of as many
    independent episodes as have the variance of the mean. The true fitness comes from a distribution that is estimated:
    a wide one, moved towards those of all other candidates (Laird and Louis, 1991), with weights as of a Dirichlet
    process (Ferguson, 1973). So the first of many that are alike is not taken for the best because of its luck, whether
    all are alike or some, and one far above the others is not drawn to them. Its own observation is left out of a
    candidate's distribution. The distributions are averaged by the probability that they give to each mean beside the
    others'.

    Args:
        mean, variance: ``(n,)`` observed means and their variances.
        freedom: degrees of freedom of the variances.
        scale: ``(n,)`` variances of an episode, if means are within 0 and 1; None without bounds.
    """
    grid, cells = _grid(mean, np.sqrt(variance), scale is not None)
    if scale is None:
        squares = (mean[:, None] - grid) ** 2 / variance[:, None]
    else:
        squares = 2.0 * _divergence(mean[:, None], grid) * (scale / variance)[:, None]
    log_likelihood = -0.5 * (freedom + 1) * np.log1p(squares / freedom)
    log_likelihood -= log_likelihood.max(axis=1, keepdims=True)
    likelihood = np.exp(log_likelihood)
    wide = _wide_prior(mean, variance, grid) * cells
    wide /= wide.sum()
    logs, posteriors = [], []
    # candidates that cluster, more or less
    for concentration in CONCENTRATIONS:
        share = 1.0 if math.isinf(concentration) else concentration / (concentration + len(mean) - 1)
        prior = np.broadcast_to(wide, likelihood.shape)
        for _ in range(ROUGHENING if share < 1.0 else 0):
            posterior = likelihood * prior
            posterior /= posterior.sum(axis=1, keepdims=True)
            others = (posterior.sum(axis=0) - posterior) / (len(mean) - 1)
            prior = share * wide + (1.0 - share) * np.maximum(others, 0.0)
        posterior = likelihood * prior
        total = posterior.sum(axis=1, keepdims=True)
        logs.append(float(np.log(total).sum()))
        posteriors.append(posterior / total)
    # equal ones
    others = log_likelihood.sum(axis=0) - log_likelihood + np.log(cells)
    prior = np.exp(others - others.max(axis=1, keepdims=True))
    prior /= prior.sum(axis=1, keepdims=True)
    posterior = likelihood * prior
    total = posterior.sum(axis=1, keepdims=True)
    logs.append(float(np.log(np.maximum(total, 1e-300)).sum()) + math.log(ALL_EQUAL))
    posteriors.append(posterior / np.maximum(total, 1e-300))
    weights = np.exp(np.array(logs) - max(logs))
    return _Posteriors(grid, cells, [(float(w), each) for w, each in zip(weights / weights.sum(), posteriors) if w > 0])


def _grid(mean: np.ndarray, deviation: np.ndarray, bounded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return values of the true fitness, finer where a likelihood is narrow, and the widths of their cells."""
    near = (mean[:, None] + deviation[:, None] * np.linspace(-5.0, 5.0, 31)).ravel()
    near = np.clip(near, 0.0, 1.0) if bounded else near
    points = np.unique(np.concatenate((near, np.linspace(near.min(), near.max(), 101))))
    middle = (points[1:] + points[:-1]) / 2
    is_near = np.abs(middle[:, None] - mean) < 5 * deviation
    width = np.minimum(np.where(is_near, deviation, np.inf).min(axis=1), (points[-1] - points[0]) / 20)
    number = np.concatenate(([0.0], np.cumsum(np.diff(points) * FINE / width)))  # of cells up to each point
    edges = np.interp(np.linspace(0.0, number[-1], int(number[-1]) + 2), number, points)
    edges = np.unique(edges)  # rounding
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def _divergence(mean: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the divergence (Kullback and Leibler, 1951) of a true rate from an observed one."""
    from scipy.special import rel_entr  # slow to import, and --check does not need it

    return rel_entr(mean, truth) + rel_entr(1.0 - mean, 1.0 - truth)


def _wide_prior(mean: np.ndarray, variance: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return a density of true fitness on a grid: Student's t with two degrees of freedom, averaged over its width.

    The probability of each width is that of a normal distribution given the means; the share of noise in their variance
    is uniform a priori (Daniels, 1999). The tails are those of t, so that one far above the others may be so in truth.
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
    # mixture of the densities
    squares = (grid - middle[:, None]) ** 2 / width[:, None]
    density = (likelihood[:, None] * (1.0 + squares / 2.0) ** -1.5).sum(axis=0)
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
    # identical episodes, but for rounding, say nothing of a spread
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
