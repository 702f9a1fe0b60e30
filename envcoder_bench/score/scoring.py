"""From the fitness of winners and references on held-out seeds to a score with its interval.

A run's score is (fitness - unshaped) / (best reference - unshaped), with means over the held-out seeds, which all have
in common: 0 is the task without shaping, 1 the best reference that is known. A model's score is the interquartile mean
over all tasks and runs (Agarwal et al., 2021, "Deep reinforcement learning at the edge of the statistical precipice"),
with a bootstrap that draws the runs of each task anew, and the held-out seeds as well. It draws one fewer than there
are: with as many, the variance of a mean of five would be four fifths of what it should be (Rao and Wu, 1988,
"Resampling inference with complex survey data").
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

DRAWS = 2000
LEVEL = 0.95
TRIM = 0.25  # of the runs at either end
DEVIATIONS = 3.0  # of seeds, by which a task's best reference must be above unshaped

Values = NDArray[np.float64]
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]  # JSON has no NaN


@dataclass(frozen=True)
class TaskValues:
    """The fitness of a task by held-out seed.

    Attributes:
        unshaped: ``(seeds,)``.
        references: ``(seeds,)`` by name, human among them.
        runs: ``(runs, seeds)``; the row of a run without a winner is that of ``unshaped``, which it leaves a user with.
    """

    unshaped: Values
    references: Mapping[str, Values]
    runs: Values

    @property
    def best(self) -> str:
        """The name of the reference with the highest mean."""
        return max(self.references, key=lambda name: float(self.references[name].mean()))

    @property
    def scale(self) -> float:
        """The mean of the best reference minus that of ``unshaped``."""
        return float((self.references[self.best] - self.unshaped).mean())

    @property
    def separates(self) -> bool:
        """Whether the best reference is above ``unshaped`` by DEVIATIONS of seeds; otherwise the task is not scored."""
        spread = max(_deviation(self.references[self.best]), _deviation(self.unshaped))
        return self.scale > 0 and self.scale >= DEVIATIONS * spread

    @property
    def scores(self) -> Values:
        """The score of each run."""
        return np.asarray([self.score_of(run) for run in self.runs])

    def score_of(self, fitness: Values) -> float:
        """Return the score of a fitness by seed; NaN where no reference differs from ``unshaped``."""
        return float((fitness - self.unshaped).mean()) / self.scale if self.scale else math.nan


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; NaN where nothing is known."""

    mean: Number = math.nan
    low: Number = math.nan
    high: Number = math.nan


def interquartile_mean(scores: Values, weights: Values | None = None) -> Values:
    """Return the mean over the last axis without the lowest and the highest quarter, of which a value counts in part.

    Args:
        weights: of the values along the last axis; equal by default.

    NaN without values.
    """
    if not scores.shape[-1]:
        return np.full(scores.shape[:-1], math.nan)
    order = np.argsort(scores, axis=-1)
    shares = (np.ones(scores.shape[-1]) if weights is None else weights)[order]
    ends = np.cumsum(shares, axis=-1)
    ends, shares = ends / ends[..., -1:], shares / ends[..., -1:]
    # the share of each value that lies between both quarters
    between = np.clip(np.minimum(ends, 1 - TRIM) - np.maximum(ends - shares, TRIM), 0.0, None)
    return (np.take_along_axis(scores, order, axis=-1) * between).sum(axis=-1) / between.sum(axis=-1)


def score(tasks: Sequence[TaskValues], seed: int = 0) -> Estimate:
    """Return the score over the tasks that separate, with its interval."""
    counted = [task for task in tasks if task.separates]
    rng = np.random.default_rng(seed)
    drawn = [_drawn(task, rng) for task in counted]
    return _estimate([task.scores for task in counted], drawn, interquartile_mean)


def mean_estimate(groups: Sequence[Sequence[float]]) -> Estimate:
    """Return the mean of all values, and a bootstrap interval that draws anew within each group (a task's runs)."""
    rng = np.random.default_rng(0)
    arrays = [np.asarray(group, dtype=np.float64) for group in groups if len(group)]
    drawn = [x[rng.integers(len(x), size=(DRAWS, _one_fewer(len(x))))] for x in arrays]
    return _estimate(arrays, drawn, lambda x, weights: np.average(x, axis=-1, weights=weights))


def _drawn(task: TaskValues, rng: np.random.Generator) -> Values:
    """Return the scores of runs and seeds that are drawn with replacement, ``(DRAWS, runs - 1)``; the scale stays."""
    runs, seeds = task.runs.shape
    gains = task.runs - task.unshaped
    weights = rng.multinomial(_one_fewer(seeds), np.full(seeds, 1 / seeds), size=DRAWS) / _one_fewer(seeds)
    scores = weights @ gains.T / task.scale
    return np.take_along_axis(scores, rng.integers(runs, size=(DRAWS, _one_fewer(runs))), axis=1)


def _one_fewer(count: int) -> int:
    return max(count - 1, 1)


def _estimate(
    groups: Sequence[Values], drawn: Sequence[Values], mean: Callable[[Values, Values | None], Values]
) -> Estimate:
    if not groups:
        return Estimate()
    # a draw has one fewer of each group, which counts as much as the whole group
    weights = np.concatenate([np.full(x.shape[1], len(group) / x.shape[1]) for group, x in zip(groups, drawn)])
    low, high = np.quantile(mean(np.concatenate(drawn, axis=1), weights), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(mean(np.concatenate(groups), None)), float(low), float(high))


def _deviation(values: Values) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0
