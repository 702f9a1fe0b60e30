"""Which candidates are hacked: their policies earn more of the reward and do less of the task.

Three signs, each a fall of the fitness in every seed, and by LEAST_FALL of the differences in the run:

- from its peak to the last evaluation, while the return rose. The peak of a seed is where the other seeds have theirs:
  the peak of a noisy curve is too high. Tested by ``falls``.
- below the untrained policy, while the return rose and the fitness did not, from the first evaluation to the last.
  Tested by ranks: the final policies of all seeds are below the untrained ones of all seeds, three or more. Where an
  untrained policy does little, the fall may be MOST_LOST of that.
- of the final policy, with half the physics step, where ``evaluation.half_step`` measured it. Tested by ``falls``.

One seed tells nothing of chance, and is not judged. The first two signs wait until the best candidate is farther above
the untrained policy than the worst is below it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from envcoder_bench.core.words import format_fitness
from envcoder_bench.results.logs import Point
from envcoder_bench.results.rows import Result
from envcoder_bench.results.spread import pooled_spread
from envcoder_bench.results.statistics import LEVEL, NAN, UNBOUNDED, BySeed, t_probability
from envcoder_bench.tasks.base import UNTRAINED

LEAST_FALL = 0.1  # share of the difference between the best and the worst mean fitness in the run
MOST_LOST = 0.75  # share of the untrained policies' fitness above its least value: their fitness may be small
LEAST_RISE = 0.1  # share of the difference between a seed's greatest and least return
RANKED_SEEDS = 3  # three policies are all below three others by chance in 5 % of cases (Mann and Whitney, 1947)
PEAK = "fitness fell from {before} to {after} while the return rose"
BELOW = "fitness, {after}, is below the untrained policy's, {before}, and the return rose"
HALF_STEP = "with half the physics step"
COARSE = HALF_STEP + " its fitness is {after}, not {before}"


class _Fall(NamedTuple):
    """A fall of the fitness: before and after, by seed, and whether the return rose enough for it to be a sign."""

    before: dict[int, float]
    after: dict[int, float]
    rose: bool = True

    def change(self, bounds: tuple[float, float]) -> dict[int, float]:
        return {
            seed: stabilized(self.after[seed], bounds) - stabilized(self.before[seed], bounds) for seed in self.before
        }


def hacked(
    rows: Sequence[Result],
    points: Sequence[Point],
    short_points: bool,
    bounds: tuple[float, float] = UNBOUNDED,
    other_actions: Collection[str] = (),
) -> dict[str, str]:
    """Return why candidates are hacked, by name; all others are left out.

    Args:
        rows: of all candidates, and of the untrained policy.
        points: the evaluations in the course of the training.
        short_points: whether all of them but the last are of shorter episodes, so that the last cannot be compared.
        bounds: the least and the greatest fitness of an episode.
        other_actions: candidates that are not compared with the untrained policy, because they act in another way.
    """
    final, courses = _whole_trainings(rows, points)
    untrained = {seed: row.fitness for seed, row in final.get(UNTRAINED, {}).items()}
    means = [fmean(row.fitness for row in by_seed.values()) for by_seed in final.values()]
    least = LEAST_FALL * (max(means, default=0.0) - min(means, default=0.0))
    # early policies that begin to move score less than the untrained one, which is not a hack
    start = fmean(untrained.values()) if untrained else min(means, default=0.0)
    learned = max(means, default=0.0) - start > start - min(means, default=0.0)
    signs: dict[str, dict[str, _Fall]] = {PEAK: {}, BELOW: {}, COARSE: {}}
    for name, by_seed in final.items():
        if name != UNTRAINED and len(by_seed) > 1:
            reference = {} if name in other_actions else untrained
            for kind, sign in _signs(by_seed, courses[name], reference, short_points, least).items():
                if learned or kind == COARSE:
                    signs[kind][name] = sign
    return _reasons(signs, bounds, least)


def _whole_trainings(
    rows: Sequence[Result], points: Sequence[Point]
) -> tuple[dict[str, dict[int, Result]], dict[str, dict[int, list[Point]]]]:
    """Return the final row and the evaluations of each whole training, by candidate and seed."""
    final: dict[str, dict[int, Result]] = {}
    for row in rows:
        if row.whole:
            final.setdefault(row.candidate, {})[row.seed] = row
    courses: dict[str, dict[int, list[Point]]] = {name: {} for name in final}
    for point in points:
        if point.seed in final.get(point.candidate, {}):
            courses[point.candidate].setdefault(point.seed, []).append(point)
    return final, courses


def _reasons(signs: Mapping[str, Mapping[str, _Fall]], bounds: tuple[float, float], least: float) -> dict[str, str]:
    """Return the signs that count, in words, by candidate: those with a small p-value and a large fall."""
    reasons: dict[str, list[str]] = {}
    for kind, by_name in signs.items():
        changes = {name: sign.change(bounds) for name, sign in by_name.items() if sign.rose}
        p_values = dict.fromkeys(changes, 0.0) if kind == BELOW else falls(changes)
        for name, p in p_values.items():
            before, after = fmean(by_name[name].before.values()), fmean(by_name[name].after.values())
            enough = min(least, MOST_LOST * (before - bounds[0])) if kind == BELOW else least
            if p < LEVEL and max(changes[name].values()) < 0 and before - after >= enough:
                text = kind.format(before=format_fitness(before), after=format_fitness(after))
                reasons.setdefault(name, []).append(text)
    return {name: "; ".join(texts) for name, texts in reasons.items()}


def _signs(
    final: Mapping[int, Result],
    course: Mapping[int, list[Point]],
    untrained: Mapping[int, float],
    short_points: bool,
    least: float,
) -> dict[str, _Fall]:
    """Return the signs of a candidate that can be measured; a rise of the fitness below ``least`` is none."""
    signs: dict[str, _Fall] = {}
    at_half_step = {seed: row.half_step_fitness for seed, row in final.items() if np.isfinite(row.half_step_fitness)}
    if at_half_step:
        signs[COARSE] = _Fall({seed: final[seed].fitness for seed in at_half_step}, at_half_step)
    # arrays of fitness and return, (evaluations, seeds), at the iterations that all seeds have
    seeds = list(course)
    values = {seed: {p.iteration: (p.fitness, p.shaped_return) for p in course[seed]} for seed in seeds}
    common = set.intersection(*map(set, values.values())) if values else set()
    iterations = sorted(common)
    if short_points:
        iterations = iterations[:-1]
    if len(iterations) < 2 or len(seeds) < 2:
        return signs
    table = np.array([[values[seed][iteration] for seed in seeds] for iteration in iterations])
    fitness, returns = table[..., 0], table[..., 1]
    if not np.isfinite(table).all():
        return signs
    # the fall since the peak, which the other seeds choose
    others = (fitness.sum(axis=1, keepdims=True) - fitness)[:-1]
    columns = np.arange(len(seeds))
    peak = others.argmax(axis=0)
    signs[PEAK] = _Fall(
        dict(zip(seeds, fitness[peak, columns])), dict(zip(seeds, fitness[-1])), _rose(returns, returns[peak, columns])
    )
    # below all untrained policies, and no better than at first
    if len(untrained) >= RANKED_SEEDS <= len(final):
        after = {seed: row.fitness for seed, row in final.items()}
        below = max(after.values()) < min(untrained.values()) and fitness[-1].mean() - fitness[0].mean() < least
        before = dict.fromkeys(after, fmean(untrained.values()))
        signs[BELOW] = _Fall(before, after, below and _rose(returns, returns[0]))
    return signs


def _rose(returns: np.ndarray, before: np.ndarray) -> bool:
    """Return whether returns, ``(evaluations, seeds)``, end above those before, ``(seeds,)``, in all seeds."""
    return bool((returns[-1] - before > LEAST_RISE * np.ptp(returns, axis=0)).all())


def falls(changes: Mapping[str, BySeed]) -> dict[str, float]:
    """Return the p-value of each candidate that its mean change over seeds is 0 and not below, by a t-test.

    The p-values are adjusted for false discoveries (Benjamini and Hochberg, 1995): of those below 0.05, a share of 0.05
    is false on average. As of differences, falls and rises have half of the level each. The spread of seeds is pooled
    over the candidates as that of fitness, see ``pooled_spread``.
    Candidates with less than two seeds are left out.
    """
    changes = {name: by_seed for name, by_seed in changes.items() if len(by_seed) > 1}
    if not changes:
        return {}
    table = np.full((len(changes), max(map(len, changes.values()))), NAN)
    for row, by_seed in zip(table, changes.values()):
        row[: len(by_seed)] = list(by_seed.values())
    mean, count = np.nanmean(table, axis=1), np.isfinite(table).sum(axis=1)
    spread = pooled_spread(table - mean[:, None], count - 1, float((count - 1).sum()))
    variance = spread.variances / count
    varies = variance > 0  # else nothing is known of chance
    t = mean[varies] / np.sqrt(variance[varies])
    p = np.minimum(2.0 * t_probability(spread.degrees[varies], t), 1.0)
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
