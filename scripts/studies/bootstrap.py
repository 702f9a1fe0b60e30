"""Estimates over several tasks, with intervals by the stratified bootstrap.

Definitions of Agarwal et al., "Deep RL at the edge of the statistical precipice" (2021), and of their library rliable.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, List, Sequence

import numpy as np

from envcoder_bench.report.statistics import Interval

DRAWS = 2000  # of the bootstrap
Strata = Dict[str, List[float]]  # scores of the runs of each task


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
