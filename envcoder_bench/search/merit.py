"""What a search knows of the fitness of its candidates: shrunken differences, and how sure they are.

Most candidates are trained with one seed, and every round has seeds of its own, so the highest mean is mostly luck.
One model takes all results of a search together: fitness = candidate + seed + noise. Baselines are fixed effects.
Candidates come from a normal distribution around their mean, and seeds from one around 0. The estimates are those of
Henderson (1975): a candidate's mean without the effects of its seeds, drawn towards that of all candidates the more,
the fewer seeds it has and the more seeds differ. The ratios of the three variances are integrated over a grid, with
uniform shares a priori (Daniels, 1999); given them, an estimate is Student's t. Rounds have no means of their own:
those would make all candidates of a round with a lucky seed better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envcoder_bench.core.words import number
from envcoder_bench.results.pairs import Pair, sentence
from envcoder_bench.results.spread import LEAST_SPREAD
from envcoder_bench.results.statistics import LEVEL, NAN, UNBOUNDED, BySeed, Interval, t_probability
from envcoder_bench.tasks.base import UNTRAINED

# shares of the variance of candidates, and of seeds, in its sum with that of the noise; their prior weights are equal
SHARES = np.append((np.arange(12) + 0.5) / 12, (0.99, 0.999)), np.array([0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.995, 0.9995])
NO_SHARE = 0.001  # of candidates that are equal, whose prior weight is EQUAL
EQUAL = 0.5
SURE = 0.98  # posterior probability of intervals that hold 95 %, as variances are estimated and the best looked at
HALVINGS = 50  # of an interval around a quantile
DIGITS = 9  # of a score: rounding must not decide between equals
ONE_SEED = "no candidate has two seeds, which would say how much seeds differ"


class Merits:
    """The shrunken fitness of candidates and baselines.

    Args:
        fitness: fitness by seed, by name; those without any are left out.
        candidates: names of candidates; all others are baselines.
        reference: the baseline from which scores are counted; without it they are fitness.

    Attributes:
        names: those with a fitness.
        reference: as given; None if it has no fitness.
    """

    def __init__(
        self,
        fitness: Mapping[str, BySeed],
        candidates: Collection[str],
        reference: str | None = None,
        bounds: tuple[float, float] = UNBOUNDED,
    ) -> None:
        self.by_seed = {name: by_seed for name, by_seed in fitness.items() if by_seed}
        self.names, self._bounds = list(self.by_seed), bounds
        self._index = {name: k for k, name in enumerate(self.names)}
        self.reference = reference if reference in self._index else None
        self._is_candidate = [name in candidates for name in self.names]

    @property
    def has_spread(self) -> bool:
        """Whether the spread of seeds is known."""
        return bool(self._varying)

    def score(self, name: str) -> float:
        """Return the expected fitness of a candidate minus that of the reference."""
        return self._scores[self._index[name]]

    def expected(self, name: str) -> Interval:
        """Return the fitness that is expected on new seeds, and its 95 % interval; NaN ends without a spread."""
        mean, low, high = self._interval(*self._fit.difference(self._index[name]))
        least, greatest = self._bounds
        return min(max(mean, least), greatest), max(low, least), min(high, greatest)

    def pair(self, name: str, other: str) -> Pair:
        """Return the difference of two candidates as it is expected on new seeds: better, worse, or cannot tell.

        Its p-value needs no correction for the number of candidates, as one that is ahead by luck is drawn back.
        """
        means, variances = self._fit.difference(self._index[name], self._index[other])
        mean, low, high = self._interval(means, variances)
        p, seeds = NAN, len(self.by_seed[name])  # other candidates tell what seeds do that the two do not share
        if self.has_spread:
            below = float(self._below(0.0, means, variances))
            p = min(1.0, 2.0 * min(below, 1.0 - below) * LEVEL / (1.0 - SURE))
        reason = "" if self.has_spread else ONE_SEED
        return Pair(name, other, mean, low, high, p, p, 1, seeds, reason=reason, extends=False)

    def _interval(self, means: np.ndarray, variances: np.ndarray) -> Interval:
        mean = float(self._fit.weights @ means)
        if not self.has_spread:
            return mean, NAN, NAN
        widest = 1e3 * float(np.sqrt(variances).max() + np.ptp(means)) + 1e-300
        ends = []
        for level in ((1.0 - SURE) / 2, (1.0 + SURE) / 2):
            low, high = mean - widest, mean + widest
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                low, high = (middle, high) if self._below(middle, means, variances) < level else (low, middle)
            ends.append((low + high) / 2)
        return mean, ends[0], ends[1]

    def _below(self, value: float, means: np.ndarray, variances: np.ndarray) -> float:
        """Return the probability that an estimate is below a value."""
        deviations = np.sqrt(np.maximum(variances, 1e-300))
        return float(self._fit.weights @ t_probability(self._fit.freedom, (value - means) / deviations))

    @cached_property
    def _scores(self) -> list[float]:
        means = self._fit.weights @ self._fit.means
        level = 0.0 if self.reference is None else means[self._index[self.reference]]
        return [float(f"{x:.{DIGITS}g}") for x in means - level]

    @cached_property
    def _varying(self) -> set[str]:
        """The names whose seeds say how much seeds differ: not a baseline that always fails or always succeeds."""
        trained = {name: list(x.values()) for name, x in self.by_seed.items() if len(x) > 1 and name != UNTRAINED}
        variances = {name: float(np.var(values, ddof=1)) for name, values in trained.items()}
        least = LEAST_SPREAD * max(variances.values(), default=0.0)
        return {x for x, variance in variances.items() if variance > least * (not self._is_candidate[self._index[x]])}

    @cached_property
    def _fit(self) -> _Fit:
        seeds = sorted({seed for by_seed in self.by_seed.values() for seed in by_seed})
        column = {seed: k for k, seed in enumerate(seeds)}
        owner, values, weights, shares = [], [], [], []
        for k, (name, by_seed) in enumerate(self.by_seed.items()):
            # the mean of seeds that do not differ is one row, so that it says nothing of the spread
            rows = [by_seed] if len(by_seed) > 1 and name not in self._varying else [{s: x} for s, x in by_seed.items()]
            for row in rows:
                share = np.zeros(len(seeds))
                share[[column[seed] for seed in row]] = 1.0 / len(row)
                owner.append(k)
                values.append(math.fsum(row.values()) / len(row))
                weights.append(float(len(row)))
                shares.append(share)
        # one mean of all candidates, and one of each baseline
        columns = np.cumsum(np.logical_not(self._is_candidate)) * np.logical_not(self._is_candidate)
        fixed = np.eye(columns.max() + 1)[columns]
        fixed = fixed if any(self._is_candidate) else fixed[:, 1:]
        return _fit(
            np.array(values), np.array(weights), np.array(owner), fixed, np.array(shares), np.array(self._is_candidate)
        )


@dataclass(frozen=True)
class _Fit:
    """The estimates at each point of the grid; given the point, they are Student's t.

    Attributes:
        weights: ``(points,)`` probabilities of the points.
        means: ``(points, names)``.
        freedom: degrees of freedom.
        covariances: ``(points, k, k)`` of the fixed effects and those of seeds.
        parts, inner: ``(points, names, k)`` how much a name has of each, ``(points, names)`` its variance given them.
    """

    weights: np.ndarray
    means: np.ndarray
    freedom: int
    covariances: np.ndarray
    parts: np.ndarray
    inner: np.ndarray

    def difference(self, a: int, b: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return ``(points,)`` means and variances of a name, or of the difference of two."""
        parts, inner, means = self.parts[:, a], self.inner[:, a], self.means[:, a]
        if b is not None:
            parts, inner, means = parts - self.parts[:, b], inner + self.inner[:, b], means - self.means[:, b]
        return means, np.einsum("gi,gij,gj->g", parts, self.covariances, parts) + inner


def _fit(
    y: np.ndarray, weight: np.ndarray, owner: np.ndarray, fixed: np.ndarray, seeds: np.ndarray, is_random: np.ndarray
) -> _Fit:
    """Fit the model by Henderson's equations, from which the effects of candidates are eliminated.

    Args:
        y, weight, owner: ``(rows,)`` fitness, number of seeds, and the name that has it.
        fixed: ``(names, effects)`` which of the fixed effects each name has.
        seeds: ``(rows, seeds)`` shares of each seed.
        is_random: ``(names,)`` whether a name has an effect of its own beside the fixed one.
    """
    (names, effects), width = fixed.shape, fixed.shape[1] + seeds.shape[1]
    centre, scale = float(y.mean()), float(np.ptp(y)) or 1.0
    y = (y - centre) / scale
    design, one_hot = np.hstack((fixed[owner], seeds)), np.eye(names)[owner]
    weighted = design * weight[:, None]
    design_by_name, y_by_name, counts = one_hot.T @ weighted, one_hot.T @ (weight * y), one_hot.T @ weight
    # ratios of the variances of candidates and of seeds to that of the noise: one axis each
    shares = np.append(NO_SHARE, SHARES[0])
    prior = np.append(EQUAL, np.full(len(SHARES[0]), (1.0 - EQUAL) / len(SHARES[0])))
    candidate, seed = (share / (1.0 - share) for share in (shares, SHARES[1]))
    inverse = np.where(is_random, 1.0 / (counts + 1.0 / candidate[:, None]), 0.0)  # (candidate, names)
    system = design.T @ weighted - np.einsum("ni,gn,nj->gij", design_by_name, inverse, design_by_name)
    ridge = np.where(np.arange(width) < effects, 0.0, 1.0 / seed[:, None])  # (seed, width)
    system = system[:, None] + ridge[:, None, :] * np.eye(width)
    right = weighted.T @ y - np.einsum("ni,gn,n->gi", design_by_name, inverse, y_by_name)
    covariances = np.linalg.inv(system)
    effect = np.einsum("gsij,gj->gsi", covariances, right)
    random = inverse[:, None] * (y_by_name - effect @ design_by_name.T)
    # likelihood, with the variance of the noise integrated out
    freedom = max(len(y) - effects, 1)
    rest = np.maximum(float(weight @ y**2) - effect @ (weighted.T @ y) - random @ y_by_name, 1e-24)
    determinants = np.linalg.slogdet(system)[1] - np.log(inverse[:, is_random]).sum(axis=1)[:, None]
    determinants += is_random.sum() * np.log(candidate)[:, None] + seeds.shape[1] * np.log(seed)
    logs = -0.5 * (determinants + freedom * np.log(rest))
    weights = prior[:, None] * np.exp(logs - logs.max())
    # of names: the fixed effect and that of a name
    noise, points = scale**2 * rest / freedom, rest.size
    whole = np.hstack((fixed, np.zeros((names, seeds.shape[1]))))
    means = centre + scale * (effect @ whole.T + random)
    parts = np.repeat(whole - inverse[:, :, None] * design_by_name, len(seed), axis=0)
    return _Fit(
        (weights / weights.sum()).ravel(),
        means.reshape(points, names),
        freedom,
        (covariances * noise[:, :, None, None]).reshape(points, width, width),
        parts,
        (inverse[:, None] * noise[:, :, None]).reshape(points, names),
    )


def expected_text(merits: Merits, name: str) -> str:
    """Return what to expect of a candidate on new seeds, and its difference to the reference, in words."""
    mean, low, high = merits.expected(name)
    interval = f" [{number(low)}, {number(high)}]" if merits.has_spread else f", how surely is unknown: {ONE_SEED}"
    pair = None if merits.reference in (None, name) else merits.pair(name, merits.reference or "")
    versus = f"; {sentence(pair)}" if pair is not None and merits.has_spread else ""
    return f"expected on new seeds is a fitness of {number(mean)}{interval}{versus}"
