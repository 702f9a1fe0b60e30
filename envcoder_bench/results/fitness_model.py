"""What a run knows of its candidates: intervals, differences, and the probability of being the best.

``FitnessModel`` is the one model: episodes within seeds within candidates. Rankings, comparisons of runs and searches
use it; ``eval-policies``, whose policies are given, compares episodes alone. The definitions are in
docs/reading_a_run.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from envcoder_bench.results.posterior import Posteriors, estimate_posteriors
from envcoder_bench.results.spread import (
    Spread,
    independent_share,
    known_mean,
    pooled_spread,
    seed_variances,
    varies,
)
from envcoder_bench.results.statistics import (
    LEVEL,
    NAN,
    UNBOUNDED,
    BySeed,
    Evaluation,
    Interval,
    corrected,
    paired_table,
    t_probability,
    t_quantile,
)

# posterior probability of intervals and contenders that hold 95 %: the distribution of the candidates is estimated, too
SURE = 0.97
ROUNDING = 1e-12  # least variance, as a share of that with what candidates share
LEFT_OUT = 0.05  # most that those together have who are no contenders, as a share of the probability of the likeliest
APART = 0.15  # how far from another truth all seeds of candidates are that count against it, see ``_unseen_at``
BELOW, ABOVE = 0, 1  # sides of a mean
MOST_PAIRS = 20_000  # that are compared at once, which keeps what they need small
HALVINGS = 16  # of the range of the end of an interval
MOST_VALUES = 1000  # that are told apart where seeds are counted
MOST_COMPARED = 500  # best candidates among which the probability of being the best is divided
NEIGHBOURS = 0.25  # share of the candidates that have a similar mean
MANY = 5  # least number of candidates that show whether the spread of seeds grows with the fitness
# seeds are seen to have a common effect beyond this multiple of the variance of the mean of all candidates
COMMON = 3.0
OWN = 1.5  # least standard errors of an expected fitness, if it does not


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
        worth: number of seeds, of others too, that say so.
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


class FitnessModel:
    """What a run knows of the fitness of its candidates: episodes within seeds within candidates.

    Two or three seeds of a candidate say little of how much its seeds differ. So the spread of seeds is pooled over the
    candidates: each has its own variance, averaged with a pooled one, which counts the more the more alike the
    candidates' variances are, see ``pooled_spread``; a difference has the sum of two. Where the fitness has bounds,
    variances are in units of m (1 - m), m being the mean between the bounds: a success rate near a bound varies less.
    No variance is below that of the mean of as many independent episodes. Differences are paired: what candidates share
    with a seed or an episode is left out, unless the seeds of one of the two hardly differ. With bounds, intervals and
    differences also allow for outcomes that the seeds may not have shown, see ``unseen``.

    With a single seed the spread is unknown, so that intervals, p-values and probabilities are NaN.

    Args:
        fitness: mean fitness of each candidate by seed.
        evaluation: the fitness of the episodes, by candidate and seed; the k-th ones of a seed begin alike.
        bounds: the least and the greatest fitness of an episode.
        episodes: number of episodes of a seed, of candidates that ``evaluation`` does not have.
        failed: the fitness of a seed that learns nothing, where fitness is unbounded; NaN if it is unknown.
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
        table = np.full((len(self.names), len(self._seeds)), NAN)
        for k, name in enumerate(self.names):
            for seed, value in fitness[name].items():
                table[k, self._seeds.index(seed)] = value
        self._bounded = math.isfinite(bounds[1] - bounds[0]) and bounds[0] < bounds[1]
        self._failed = NAN if self._bounded else failed
        self._low, self._width = (bounds[0], bounds[1] - bounds[0]) if self._bounded else (0.0, 1.0)
        table = (table - self._low) / self._width
        self._fitness = table  # (candidates, seeds), within 0 and 1 if there are bounds
        self._count = np.isfinite(table).sum(axis=1)
        self._mean = known_mean(table, 1)
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
        self._known_posteriors: dict[bytes, tuple[np.ndarray, Posteriors]] = {}
        # two more episodes, one at each bound, so that no success of n is not taken for none ever
        self._inner = (self._total_episodes * self._mean + 1) / (self._total_episodes + 2)
        self._scale = self._inner * (1 - self._inner) if self._bounded else np.ones(len(self.names))

    @property
    def has_spread(self) -> bool:
        """Whether any candidate has two seeds."""
        return bool((self._count > 1).any())

    def interval(self, name: str) -> Interval:
        """Return the mean fitness of a candidate over its seeds, and its 95 % interval; NaN without a spread.

        With bounds it is the interval of Korn and Graubard (1998): Clopper and Pearson's, of as many independent
        episodes as have the variance of the mean. Without, it is Student's.
        """
        k = self._index[name]
        low, high = self._intervals[:, k]
        return self._value(self._mean[k]), self._value(low), self._value(high)

    def difference(self, name: str, other: str) -> Difference:
        """Return the fitness of a candidate minus that of another, over the seeds that both have."""
        return self.differences(name, [other])[0]

    def differences(self, names: str | Sequence[str], others: str | Sequence[str]) -> list[Difference]:
        """Return the fitness of candidates minus those of others, each over the seeds that both have.

        One of the two may be a single name, which is compared with each of the others.
        """
        first, second = np.broadcast_arrays(self._indices(names), self._indices(others))
        of_all = self._differences(np.atleast_1d(first), np.atleast_1d(second))
        return [Difference(*row) for row in zip(*(column.tolist() for column in of_all))]

    def p_values(self, names: str | Sequence[str], others: str | Sequence[str]) -> np.ndarray:
        """Return the p-values of ``differences``, without their intervals, which take longer."""
        first, second = np.broadcast_arrays(self._indices(names), self._indices(others))
        return self._tests(np.atleast_1d(first), np.atleast_1d(second))[1]

    def _indices(self, names: str | Sequence[str]) -> np.ndarray:
        return np.array(self._index[names] if isinstance(names, str) else [self._index[name] for name in names], int)

    def told_apart(self, names: Sequence[str], looks: int = 1) -> np.ndarray:
        """Return which candidates differ beyond chance among all their pairs: ``(n, n)`` bool; see ``corrected``."""
        index = np.array([self._index[name] for name in names], dtype=int)
        rows, columns = np.triu_indices(len(index), 1)
        parts = range(0, len(rows), MOST_PAIRS)
        pairs = [(index[rows[k : k + MOST_PAIRS]], index[columns[k : k + MOST_PAIRS]]) for k in parts]
        p_values = corrected(np.concatenate([*(self._tests(a, b)[1] for a, b in pairs), np.empty(0)]), looks)
        apart = np.zeros((len(index), len(index)), dtype=bool)
        apart[rows, columns] = np.array(p_values) < LEVEL
        return apart | apart.T

    def unseen(self, name: str) -> float:
        """Return the share of seeds that may have an outcome unlike those seen, at 95 %; NaN if its size is unknown.

        With n seeds, none of which has another outcome, it is 1 - 0.05^(1 / n) (Clopper and Pearson, 1934). Where there
        are bounds, another outcome may be at one of them: intervals and differences allow for it. Without bounds it
        may be that of a seed that learns nothing, or the best of the run. Seeds of others count, too: see
        ``_unseen_at``.
        """
        known = self._bounded or not math.isnan(self._failed)
        k = self._index[name]
        return float(self._unseen[BELOW, k] / max(self._reach[BELOW, k], 1e-300)) if known and self.has_spread else NAN

    def _differences(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the fields of ``Difference`` of candidates ``a`` minus ``b``, ``(n,)``."""
        mean, p, seeds, error, freedom, unseen, worth = self._tests(a, b)
        low = high = np.full(len(b), NAN)
        if self._raw is not None:
            errors = np.broadcast_to(t_quantile(freedom) * error, (2, len(b)))
            ends = self._farthest(errors, np.array([[BELOW, ABOVE], [ABOVE, BELOW]]), np.stack((a, b)))
            low, high = mean - ends[BELOW], mean + ends[ABOVE]
            if self._bounded:
                low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
        width = self._width
        return mean * width, low * width, high * width, p, seeds, error * width, freedom, unseen * width, worth

    def _tests(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return mean, p, seeds, error, freedom, unseen, worth, of ``Difference``, unscaled, ``(n,)``."""
        gaps = self._fitness[a] - self._fitness[b]  # (n, seeds)
        seeds = np.isfinite(gaps).sum(axis=1)
        mean = np.where(seeds > 0, known_mean(gaps, 1), self._mean[a] - self._mean[b])
        if self._raw is None:
            unknown = np.full(len(b), NAN)
            return mean, unknown, seeds, unknown, unknown, np.zeros(len(b)), np.ones(len(b))
        variance, freedom = np.where(seeds > 0, self._paired(a, b, seeds), self._unpaired(a, b))
        if not self._bounded:  # equal differences of values that are counts may be luck
            unlike = (np.abs(gaps - mean[:, None]) > ROUNDING * np.abs(mean)[:, None]).any(axis=1)
            alike = np.flatnonzero(~unlike & (seeds > 0) & (mean != 0) & (variance > 0))
            rounded = self._steps(a[alike], b[alike]) ** 2 / 6 / seeds[alike]
            variance[alike] = np.maximum(variance[alike], rounded)
        error = np.sqrt(np.where(variance > 0, variance, NAN))  # if nothing varies, nothing is known of chance
        sides = np.where(mean > 0, [[BELOW], [ABOVE]], [[ABOVE], [BELOW]])
        unseen, worth = self._unseen_at(np.abs(mean), sides, np.stack((a, b)))
        p = 2.0 * t_probability(freedom, -least_error(np.abs(mean), unseen) / error)
        return mean, p, seeds, error, freedom, unseen, worth

    def _steps(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the least differences of two values of either candidate, to which they may be rounded."""
        steps = np.diff(np.sort(np.hstack((self._fitness[a], self._fitness[b])), axis=1), axis=1)
        larger = steps > ROUNDING * np.nanmax(steps, axis=1, initial=0.0)[:, None]
        return np.nanmin(np.where(larger, steps, np.nan), axis=1, initial=np.inf)

    @cached_property
    def chances(self) -> dict[str, float]:
        """The probability of each candidate that it is the best in truth, of those that have all seeds.

        Empty for a single candidate, or without a spread of seeds; see ``estimate_posteriors``.
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
        ``chances``; see ``estimate_posteriors``.
        """
        if self._raw is None or self._shared is None:
            return {}
        index, posteriors = self._posteriors_of(self._count > 0)
        if not len(index):
            return {}
        grid = posteriors.grid
        density = sum(weight * each for weight, each in posteriors.weighted)
        cells = posteriors.cells
        # what all candidates share with their seeds moves them together: its variance is known from these seeds alone
        common, varied = 0.0, self._varied
        if varied.any():
            own = float((self._shared.variances * self._scale / np.maximum(self._count, 1))[varied].mean())
            both = float((self._raw.variances * self._scale / np.maximum(self._count, 1))[varied].mean())
            is_seen = (both - own) * varied.sum() > COMMON * own
            freedom = len(self._seeds) - 1 if is_seen else self._raw.total
            common = float(t_quantile(freedom)) * math.sqrt(max(both - own, 0.0))
        errors = self._least_errors(self._shared) * np.sqrt(
            self._shared.variances * self._scale / np.maximum(self._count, 1)
        )
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
            low = mean - float(farthest(np.hypot(mean - low, common), self._unseen[BELOW, k]))
            high = mean + float(farthest(np.hypot(high - mean, common), self._unseen[ABOVE, k]))
            if self._bounded:
                low, high = max(low, 0.0), min(high, 1.0)
            found[self.names[k]] = self._value(mean), self._value(low), self._value(high)
        return found

    def _least_errors(self, spread: Spread) -> np.ndarray:
        """Return how many standard errors around its mean an expected fitness allows for, whatever the others have.

        Where the spread of seeds grows with the fitness, and where too few candidates show whether it does, these are
        as many as in the interval of the mean, by the spread of candidates with a similar mean.
        """
        count, own = len(self._mean), seed_variances(self._rest[0])
        least = ROUNDING * seed_variances(self._deviations).max()
        several = np.flatnonzero(own > least)  # a single seed, or equal ones, say nothing of a spread
        mean, own = self._mean[several], own[several]
        if len(several) == 0 or (len(several) >= MANY and not spread_grows(mean, own)):
            return np.full(count, OWN)
        order = np.argsort(mean, kind="stable")
        near = min(max(3, math.ceil(NEIGHBOURS * len(several))), len(several))
        # each candidate has those around its place among the means
        begin = np.clip(np.searchsorted(mean[order], self._mean) - near // 2, 0, len(several) - near)
        sums = np.concatenate(([0.0], np.cumsum(own[order])))
        similar = (sums[begin + near] - sums[begin]) / near
        wider = np.sqrt(np.maximum(similar / np.maximum(spread.variances, 1e-300), 1.0))
        return t_quantile(spread.degrees) * wider

    def _posteriors_of(self, which: np.ndarray) -> tuple[np.ndarray, Posteriors]:
        """Return the best of some candidates, by index, and their posteriors; none without a spread of seeds."""
        key = which.tobytes()
        if key not in self._known_posteriors:
            self._known_posteriors[key] = self._new_posteriors_of(which)
        return self._known_posteriors[key]

    def _new_posteriors_of(self, which: np.ndarray) -> tuple[np.ndarray, Posteriors]:
        nothing = np.empty(0, dtype=int), Posteriors(np.empty(0), np.empty(0), ())
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
        return best, estimate_posteriors(self._mean[best], own, self._shared.total, scale)

    def contenders(self) -> list[str]:
        """Return candidates that hold the best with a probability of 95 %, the likeliest first.

        These are the fewest with a probability of SURE, and those that outcomes which were not seen may put before the
        first: ``chances`` does not know of them. Where many are alike, the likeliest has a small probability, and what
        the others together have says more of the model than of them; so fewer are left out, see LEFT_OUT.
        """
        ordered = sorted(self.chances.items(), key=lambda pair: -pair[1])
        sure = max(SURE, 1.0 - LEFT_OUT * ordered[0][1]) if ordered else SURE
        names: list[str] = []
        total, last = 0.0, NAN
        for name, chance in ordered:
            if total >= sure and chance < last - 1e-9:  # equals belong together
                break
            names.append(name)
            total, last = total + chance, chance
        others = [name for name, _ in ordered[len(names) :]]
        first = max(self.chances, key=lambda name: self._mean[self._index[name]], default="")
        differences = self.differences(first, others) if others else []
        return names + [name for name, each in zip(others, differences) if 0 < each.mean <= each.unseen]

    def _value(self, share: float) -> float:
        return float(self._low + self._width * share)

    @cached_property
    def _deviations(self) -> np.ndarray:
        """``(candidates, seeds)`` deviations from a candidate's mean, in units of the root of its scale."""
        return (self._fitness - self._mean[:, None]) / np.sqrt(self._scale)[:, None]

    @cached_property
    def _varied(self) -> np.ndarray:
        """``(candidates,)`` which have seeds that differ, see ``varies``."""
        return varies(seed_variances(self._deviations), np.maximum(self._count - 1, 0))

    @cached_property
    def _raw(self) -> Spread | None:
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
                # of the candidates that vary: ``pooled_spread`` takes their share of the total
                total *= sum(parts) ** 2 / squares / freedom[self._varied].sum()
        return pooled_spread(self._deviations, freedom, total)

    @cached_property
    def _rest(self) -> tuple[np.ndarray, float]:
        """``_deviations`` without what candidates share with a seed, and the share of independent candidates.

        What they share is the mean of those with all seeds, where two or more vary: one that always fails shares none.
        """
        rest, varied = self._deviations.copy(), self._varied
        whole = self._complete & varied
        if whole.sum() < 2:
            return rest, 1.0
        own = rest[varied] - rest[whole].mean(axis=0)
        rest[varied] = own - known_mean(own, 1)[:, None]
        # candidates that share their seeds in groups are fewer, and their mean has taken more of their variance
        share = independent_share(rest[whole])
        rest[varied] *= math.sqrt(1.0 + 1.0 / max((whole.sum() - 1) * share, 1.0))
        return rest, share

    @cached_property
    def _shared(self) -> Spread | None:
        """The spread of seeds without what candidates share with a seed, see ``_rest``."""
        varied = self._varied
        count = int((self._complete & varied).sum())
        if not self.has_spread or count < 2:
            return self._raw
        rest, share = self._rest
        freedom = np.maximum(self._count - 1, 0) * np.where(varied, (count - 1) / count, 1.0)
        spread = pooled_spread(rest, freedom, float(freedom.sum()) * share)
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
        rest = self._episodes - known_mean(self._episodes, 2)[:, :, None]
        varied = self._varied
        count = int((self._complete & varied).sum())
        if shared and count > 1:
            common = known_mean(rest[self._complete & varied], 0)
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
        moderated = np.maximum(spread.variances, spread.pooled / 2)  # equal seeds may be luck
        variance = np.maximum(moderated * self._scale / self._count, self._floors[0])
        quantile = t_quantile(spread.degrees)
        if self._bounded:
            low, high = _proportion_interval(self._mean, self._scale / variance, self._count, quantile)
        else:
            half = np.where(variance > 0, quantile * np.sqrt(variance), NAN)
            low, high = self._mean - half, self._mean + half
        errors = np.stack((self._mean - low, high - self._mean))
        ends = self._farthest(errors, np.array([[BELOW, ABOVE]]), np.arange(len(self.names))[None])
        low, high = self._mean - ends[BELOW], self._mean + ends[ABOVE]
        return np.stack((np.maximum(low, 0.0), np.minimum(high, 1.0)) if self._bounded else (low, high))

    @cached_property
    def _unseen(self) -> np.ndarray:
        """``(2, candidates)``: how far the truth may be below and above the mean by outcomes that were not seen."""
        every = np.arange(len(self.names))[None]
        return self._farthest(np.zeros((2, len(self.names))), np.array([[BELOW, ABOVE]]), every)

    def _farthest(self, error: np.ndarray, sides: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Return ``farthest`` for what ``_unseen_at`` allows for at that distance, ``(2, n)``.

        Args:
            error: ``(2, n)`` of the two ends of an interval.
            sides: ``(k, 2)`` for each candidate and end, BELOW or ABOVE.
            which: ``(k, n)`` candidates.
        """
        if not self._reach.any():
            return error
        sides, which = np.repeat(sides, which.shape[1], axis=1), np.tile(which, 2)
        near = error.ravel()
        far = near + self._reach[sides, which].sum(axis=0)
        for _ in range(HALVINGS):
            middle = (near + far) / 2
            possible = middle <= farthest(error.ravel(), self._unseen_at(middle, sides, which)[0])
            near, far = np.where(possible, middle, near), np.where(possible, far, middle)
        return far.reshape(error.shape)

    def _unseen_at(self, distance: np.ndarray, sides: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how far outcomes that were not seen may move a truth, and the least number of seeds that say so.

        These are the candidate's own seeds, and those of others that say that seeds do not come near a truth at this
        distance from its mean: all are nearer to the mean, by APART of the distance. So a candidate that is unlike all
        others has but its own seeds.

        Args:
            distance: ``(n,)``.
            sides, which: ``(k, n)`` sides of the mean, BELOW or ABOVE, and candidates.
        """
        is_below = sides == BELOW
        nearer, fallen, of_those = (
            np.where(is_below, *counts)
            for counts in zip(*(self._seeds_on(side, distance, which) for side in (BELOW, ABOVE)))
        )
        worth = np.maximum(nearer, self._count[which])
        share = unseen_share(worth)
        # fewer speak against it than seem to: candidates that fell with some of their seeds are not among the nearer
        share = np.maximum(share, np.minimum(likely_share(fallen, of_those), unseen_share(self._count[which])))
        # of two candidates both may have them: independent errors (Zou and Donner, 2008)
        return np.sqrt(((self._reach[sides, which] * share) ** 2).sum(axis=0)), worth.min(axis=0)

    def _seeds_on(self, side: int, distance: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return numbers of seeds that say how probable a truth on a side of a mean is, ``(k, n)`` each.

        These are the seeds of candidates all of whose seeds are nearer to the mean; and, of candidates with a seed as
        good as the mean, to APART of the distance, those seeds that are at the truth or beyond it, and all seeds.
        """
        sign = 1 if side == BELOW else -1
        mean = sign * self._mean[which]
        worst, seeds = self._ends[side]
        best, of_best, values, table = self._falls[side]
        nearer = seeds[np.searchsorted(worst, mean - (1.0 - APART) * distance)]
        row = np.searchsorted(best, mean - APART * distance)
        return (
            nearer,
            table[row, np.searchsorted(values, mean - (1.0 - ROUNDING) * distance, side="right")],
            of_best[row],
        )

    @cached_property
    def _ends(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The least fitness of candidates, and the greatest with its sign changed, sorted; and seeds from each on."""
        pairs = []
        for ends in (np.nanmin(self._fitness, axis=1), -np.nanmax(self._fitness, axis=1)):
            order = np.argsort(ends, kind="stable")
            pairs.append((ends[order], np.append(np.cumsum(self._count[order][::-1])[::-1], 0)))
        return pairs

    @cached_property
    def _falls(self) -> list[tuple[np.ndarray, ...]]:
        """For both signs: the best seeds of candidates, sorted; seeds from each on; some values; and how many seeds
        of candidates from each on have each value or less."""
        tables = []
        for fitness in (self._fitness, -self._fitness):
            best = np.nanmax(fitness, axis=1)
            order = np.argsort(best, kind="stable")
            values = np.unique(fitness[np.isfinite(fitness)])
            values = values[np.linspace(0, len(values) - 1, min(len(values), MOST_VALUES)).astype(int)]
            # from the last candidate on: seeds at each value
            table = np.zeros((len(order) + 1, len(values) + 1), dtype=np.int32)
            for row, k in enumerate(order):
                own = np.searchsorted(values, fitness[k][np.isfinite(fitness[k])])
                table[row] = np.bincount(np.minimum(own, len(values) - 1) + 1, minlength=len(values) + 1)
            table = np.cumsum(np.cumsum(table[::-1], axis=0)[::-1], axis=1)
            of_best = np.append(np.cumsum(self._count[order][::-1])[::-1], 0)
            tables.append((best[order], of_best, values, table))
        return tables

    @cached_property
    def _reach(self) -> np.ndarray:
        """``(2, candidates)``: how far outcomes that were not seen may be below and above the mean."""
        low, high, most = 0.0, 1.0, 1.0
        if not self._bounded:
            if math.isnan(self._failed) or not len(self.names):
                return np.zeros((2, len(self.names)))
            low, high = min(self._failed, np.nanmin(self._fitness)), max(self._failed, np.nanmax(self._fitness))
            most = max((high - low) ** 2 / 4, 1e-300)  # variance
        # seeds that differ as much as they can have shown what there is
        hidden = np.maximum(1.0 - seed_variances(self._deviations) / most, 0.0)
        return np.stack((self._mean - low, high - self._mean)) * hidden

    def _paired(self, a: np.ndarray, b: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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

    def _unpaired(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return variances and degrees of freedom of differences of two means without common seeds."""
        spread = self._raw
        assert spread is not None
        variance = np.maximum(spread.variances * self._scale / self._count, self._floors[0])
        return variance[a] + variance[b], np.minimum(spread.degrees[a], spread.degrees[b])


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


def unseen_share(seeds: np.ndarray) -> np.ndarray:
    """Return the share of seeds that may have an outcome that none of so many had, at 95 %."""
    return 1.0 - LEVEL ** (1.0 / seeds)


def likely_share(fallen: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return the share of seeds that fall as these did: about the median of a beta distribution; 0 if none fell."""
    return np.where(fallen > 0, (fallen + 2.0 / 3.0) / (seeds + 1.0 / 3.0), 0.0)


def spread_grows(means: np.ndarray, variances: np.ndarray) -> bool:
    """Return whether the variances of seeds grow with the means of candidates, beyond chance: Spearman's test."""
    from scipy.stats import spearmanr  # slow to import, and --check does not need it

    alike = np.round(variances / variances.max(), 9)  # equal ones differ by rounding
    if np.ptp(alike) == 0 or np.ptp(means) == 0:
        return False
    test: Any = spearmanr(means, alike, alternative="greater")
    return bool(test.pvalue < LEVEL)


def farthest(error: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Return how far from the mean the truth may be by an error of the mean and by outcomes that no seed had.

    A truth that is so far needs both at once, so their probabilities multiply. The logarithm of that of unseen outcomes
    is nearly linear in how far they move the mean, that of an error is quadratic: of ``unseen`` and of the square of
    ``error``, each of which alone has a probability of 5 %, the shares add up to at most 1.
    """
    return np.where(error < 2.0 * unseen, unseen + error**2 / (4.0 * np.maximum(unseen, 1e-300)), error)


def least_error(distance: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Return the error that explains a distance together with unseen outcomes: the inverse of ``farthest``."""
    with_both = 2.0 * np.sqrt(unseen * np.maximum(distance - unseen, 0.0))
    return np.where(distance < 2.0 * unseen, with_both, distance)
