"""The posterior of the true fitness of candidates, by empirical Bayes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# distributions of the candidates' fitness: weight of a wide one, in candidates; the others count one each
CONCENTRATIONS = (math.inf, 20.0, 5.0, 1.0)
ALL_EQUAL = 1.0  # odds of equal candidates against each of them, before anything is observed
ROUGHENING = 5  # steps from the wide distribution towards the observed one
FINE = 4.0  # points of a grid in the deviation of the narrowest likelihood


@dataclass(frozen=True)
class Posteriors:
    """What is known of the true fitness of candidates.

    Attributes:
        grid, cells: ``(points,)`` values of the true fitness, and the widths of their cells.
        weighted: of each distribution that the candidates may come from its probability, and ``(candidates, points)``
            probabilities.
    """

    grid: np.ndarray
    cells: np.ndarray
    weighted: Sequence[tuple[float, np.ndarray]]


def estimate_posteriors(mean: np.ndarray, variance: np.ndarray, freedom: float, scale: np.ndarray | None) -> Posteriors:
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
    return Posteriors(grid, cells, [(float(w), each) for w, each in zip(weights / weights.sum(), posteriors) if w > 0])


def _grid(mean: np.ndarray, deviation: np.ndarray, bounded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return values of the true fitness, finer where a likelihood is narrow, and the widths of their cells."""
    near = (mean[:, None] + deviation[:, None] * np.linspace(-5.0, 5.0, 31)).ravel()
    near = np.clip(near, 0.0, 1.0) if bounded else near
    points = np.unique(np.concatenate((near, np.linspace(near.min(), near.max(), 101))))
    middle = (points[1:] + points[:-1]) / 2
    is_near = np.abs(middle[:, None] - mean) < 5 * deviation
    width = np.minimum(np.where(is_near, deviation, np.inf).min(axis=1), (points[-1] - points[0]) / 20)
    number = np.concatenate(([0.0], np.cumsum(np.diff(points) * FINE / width)))  # cells up to each point
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
