"""The rule of a race: which candidates are stopped at a rung, from the evaluation episodes so far.

Pure functions of plain data. ``docs/racing.md`` has the formulas, and ``benchmarks/`` what was measured.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.words import number
from envcoder_bench.results.statistics import Evaluation, paired_table
from envcoder_bench.run.spec import RunConfig

TOP = 3  # a race looks for the three best candidates
LEAST = TOP + 1  # candidates that a race needs
SHARES = (0.1, 0.2, 0.4, 0.7)  # default rungs, as shares of the iterations
# A share of the candidates is stopped once the third best has improved by this many standard errors.
ERRORS = 2.0
# Until then only candidates that are out of reach are stopped: the largest probability, over all rungs, that one of the
# best TOP is taken for worse, and the largest pace at which a candidate may still learn, in units of the third best's.
LEVEL = 0.05
REACH = 0.25
EFFECT_PRECISION = 4.0  # precision of the mixture over effect sizes: intervals are narrow for 20 to 200 episodes


@dataclass(frozen=True)
class Stop:
    """A candidate that is stopped: its fitness and rank among those that raced to this rung, and why."""

    candidate: str
    fitness: float
    rank: int
    reason: str


def plan_rungs(asked: Sequence[Any] | None, iterations: int, evaluations: Iterable[int]) -> list[int]:
    """Return the iterations of the rungs: those asked for, or SHARES of all, at the next evaluation each.

    The first evaluation is never a rung, because later ones are compared with it.

    Raises UserError if the rungs are not increasing whole numbers below ``iterations``.
    """
    if asked is None:
        asked = sorted({max(1, round(share * iterations)) for share in SHARES} - {iterations})
    before = 0
    for rung in asked:
        if type(rung) is not int or rung <= before:
            raise UserError(f"race.rungs must be increasing iterations, such as [100, 200], got {list(asked)}")
        if rung >= iterations:
            raise UserError(f"race.rungs: {rung} is not below learning_iterations={iterations}, where the race ends")
        before = rung
    ends = sorted(evaluations)
    planned = {next(end for end in ends if end >= rung) for rung in asked}
    return sorted(planned - {iterations, ends[0]})


def evaluation_iterations(total: int, points: int) -> set[int]:
    """Return ``points`` iterations spread evenly over ``total``, including the last one."""
    return {max(1, round(total * (k + 1) / points)) for k in range(points)} if points > 0 else {total}


def compared_iterations(cfg: RunConfig) -> set[int]:
    """Return the evaluations by which a race decides: its rungs, and the first, with which the rungs are compared."""
    if not cfg.race.enabled:
        return set()
    return {min(evaluation_iterations(cfg.learning_iterations, cfg.evaluation.points)), *asked_rungs(cfg)}


def asked_rungs(cfg: RunConfig) -> list[int]:
    """Return the rungs of a run's config. Raises UserError as ``plan_rungs``."""
    iterations, asked = cfg.learning_iterations, cfg.race.rungs
    planned = evaluation_iterations(iterations, cfg.evaluation.points)
    return plan_rungs(None if asked is None else list(asked), iterations, planned)


def decide(
    keep: float, history: Mapping[int, Evaluation], candidates: Sequence[str], iterations: int, rungs: int
) -> list[Stop]:
    """Return the candidates that are stopped at a rung, best first.

    Once the best have learned something, the share ``keep`` of the candidates goes on. Before that, and where it is 1,
    only what is surely out of reach of the third best is stopped.

    Args:
        history: all evaluations until now by iteration; the last one is the rung's.
        candidates: those still in the race.
        iterations: of the whole training.
        rungs: number of rungs of the race, over which ``LEVEL`` is divided.
    """
    now = max(history)
    ranked = _ranked(history[now], candidates)
    if len(ranked) < LEAST:
        return []
    if keep < 1 and learned(history, candidates):
        kept = max(TOP, math.ceil(keep * len(ranked) - 1e-9))
        return [
            Stop(name, fitness, rank, f"beyond the best {kept} of {len(ranked)}")
            for rank, (name, fitness) in enumerate(ranked, 1)
            if rank > kept
        ]
    margin = _margin(history, candidates, ranked[TOP - 1][1], now, iterations)
    if math.isinf(margin):
        return []
    return _out_of_reach(history[now], ranked, margin, LEVEL / (rungs * (len(ranked) - 1)))


def _ranked(evaluation: Evaluation, candidates: Sequence[str]) -> list[tuple[str, float]]:
    """Return candidates with their mean fitness over all seeds and episodes, best first; ties by name."""
    rows: dict[str, list[float]] = {}
    for (name, _), fitness in evaluation.items():
        rows.setdefault(name, []).append(math.fsum(fitness) / len(fitness))
    means = {name: math.fsum(rows[name]) / len(rows[name]) for name in candidates if name in rows}
    finite = [(name, mean) for name, mean in means.items() if math.isfinite(mean)]
    return sorted(finite, key=lambda pair: (-pair[1], pair[0]))


def learned(history: Mapping[int, Evaluation], candidates: Sequence[str]) -> bool:
    """Return whether the third best has improved on that of the first evaluation, beyond the noise of episodes.

    Before that, the current ranks predict the final ones badly: the differences are those of untrained policies.
    """
    means, variances = [], []
    for iteration in (max(history), min(history)):
        ranked = _ranked(history[iteration], candidates)
        if len(ranked) < TOP:  # the others had no finite fitness
            return False
        third = ranked[TOP - 1][0]
        episodes = np.concatenate([played for (name, _), played in history[iteration].items() if name == third])
        means.append(float(np.mean(episodes)))
        variances.append(float(np.var(episodes, ddof=1)) / len(episodes) if len(episodes) > 1 else math.inf)
    return means[0] - means[1] > ERRORS * math.sqrt(sum(variances))


def _margin(
    history: Mapping[int, Evaluation], candidates: Sequence[str], third: float, now: int, iterations: int
) -> float:
    """Return how much a candidate may still gain: ``REACH`` times what the third best would at its pace so far.

    Infinite while the third best is not better than untrained policies: the median of the first evaluation.
    """
    first = min(history)
    gained = third - float(np.median([mean for _, mean in _ranked(history[first], candidates)] or [math.nan]))
    if not gained > 0 or first == now:
        return math.inf
    return REACH * gained * (iterations - now) / (now - first)


def _out_of_reach(evaluation: Evaluation, ranked: list[tuple[str, float]], margin: float, level: float) -> list[Stop]:
    """Stop candidates that at least TOP others beat by more than ``margin``, each with confidence ``1 - level``."""
    names = [name for name, _ in ranked]
    episodes = paired_table(evaluation, names).reshape(len(names), -1)
    stops = []
    for rank, (name, fitness) in enumerate(ranked, 1):
        if rank <= TOP or fitness + margin >= ranked[TOP - 1][1]:
            continue
        bounds = sorted(lower_bounds(episodes[: rank - 1] - episodes[rank - 1], level), reverse=True)
        if bounds[TOP - 1] > margin:
            ahead = ranked[TOP - 1][1] - fitness
            far, surely, reach = (number(x, 3) for x in (ahead, bounds[TOP - 1], margin))
            reason = f"{far} behind the third best, surely {surely}; within reach: {reach}"
            stops.append(Stop(name, fitness, rank, reason))
    return stops


def lower_bounds(differences: np.ndarray, level: float) -> list[float]:
    """Return a lower confidence bound on the mean of each row of ``differences`` ``(rows, n)``; NaN are left out.

    -infinity where there are fewer than two.
    """
    finite = np.isfinite(differences)
    counts = finite.sum(axis=1)
    enough = np.maximum(counts, 2)
    means = np.where(finite, differences, 0.0).sum(axis=1) / enough
    deviations = np.sqrt((np.where(finite, differences - means[:, None], 0.0) ** 2).sum(axis=1) / (enough - 1))
    widths = np.array([half_width(n, level) if n > 1 else math.inf for n in counts.tolist()])
    return [
        m - w * s if math.isfinite(w) else -math.inf for m, w, s in zip(means.tolist(), widths, deviations.tolist())
    ]


def half_width(n: int, level: float) -> float:
    """Return half the width of a confidence sequence after ``n`` observations, in sample standard deviations.

    The t-test's normal mixture over effect sizes (Lai, 1976; Wang and Ramdas, 2023): with probability ``1 - level``
    the mean of independent Gaussian numbers is inside at all n at once. Infinite where n is too small for the level.
    """
    share = EFFECT_PRECISION / (n + EFFECT_PRECISION)
    growth = (level * math.sqrt(share)) ** (-2 / n)
    if growth * share >= 1:
        return math.inf
    return math.sqrt((growth - 1) / (1 - growth * share) * (n - 1) / n)
