"""The metrics of a candidate besides its fitness: one field of Metrics for each, the only place that lists it.

A field says how the values of a candidate's seeds join, and how the tables show them. results.csv, summary.json, the
ranking on the terminal and the ranking on the page take their columns from METRICS.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from envcoder_bench.core.words import number
from envcoder_bench.results.statistics import mean_or_nan

NAN = math.nan


def mean(values: Sequence[float], measured: Sequence[float]) -> float:
    """Return the mean over the seeds with a fitness; a value that diverged would leave no mean of the others."""
    return mean_or_nan([x for x in measured if math.isfinite(x)])


def total(values: Sequence[int], measured: Sequence[int]) -> int:
    return sum(values)


def greatest(values: Sequence[int], measured: Sequence[int]) -> int:
    return max(values)


def first(values: Sequence[str], measured: Sequence[str]) -> str:
    """Return the first text that is not empty."""
    return next((x for x in values if x), "")


def counts(values: Sequence[str], measured: Sequence[str]) -> str:
    """Return the sums of ``15 NAME, 2 OTHER`` of all seeds, the most frequent first."""
    sums: Counter[str] = Counter()
    for part in ", ".join(filter(None, values)).split(", "):
        count, _, name = part.partition(" ")
        sums[name] += int(count) if count.isdigit() else 0
    return counted_names({name: count for name, count in sums.items() if name})


def counted_names(numbers: Mapping[str, int]) -> str:
    """Return ``15 NAME, 2 OTHER`` of numbers by name, the greatest first, without zeros."""
    return ", ".join(f"{n} {name}" for name, n in sorted(numbers.items(), key=lambda pair: -pair[1]) if n)


@dataclass(frozen=True)
class Metric:
    """How a metric joins and how it is shown.

    Attributes:
        over_seeds: joins the values of a candidate: those of all seeds, and those of the seeds with a fitness.
        title, short: head of its column on the page and on the terminal; without one it is not shown there.
        text: formats a number.
        order: of the first click on the page's head.
        if_different: whether the page leaves the column out where all values are equal.
        note: explains the terminal's column.
    """

    over_seeds: Callable[[Sequence[Any], Sequence[Any]], Any]
    title: str = ""
    short: str = ""
    text: Callable[[float], str] = number
    order: str = "descending"
    if_different: bool = False
    note: str = ""


def metric(default: Any, over_seeds: Callable[[Sequence[Any], Sequence[Any]], Any], **shown: Any) -> Any:
    """Declare a field of Metrics, with the arguments of Metric."""
    return field(default=default, metadata={"metric": Metric(over_seeds, **shown)})


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What is measured of a group, or of a candidate over its seeds. Unknown numbers are NaN.

    Attributes:
        episodes, episode_length: number of evaluation episodes, and their mean length in control steps.
        shaped_return: mean undiscounted return of the candidate's own reward over the last training episodes.
        env_steps: control steps of training.
        unstable_resets: number of resets of environments because their physics blew up.
        training_episodes: number of finished training episodes, including those that ended in a blow-up.
        contact_overflows: env-steps, in training and evaluation, in which the simulator dropped contacts for lack of
            room; if it is not 0, the row is not reliable.
        stopped_at, reason: if a race stopped the candidate, the iteration (else 0), and its rank there with the reason.
        ended: how many evaluation episodes each of the task's conditions ended early: ``15 cart_pos at its range``.
        half_step_fitness: fitness of the final policy with half the physics step; NaN without evaluation.half_step.
        hacked: why the candidate's policies are taken to exploit its reward, see ``results.hacks``; empty if not.
    """

    episodes: int = metric(0, total)
    episode_length: float = metric(
        NAN,
        mean,
        title="steps",
        short="steps",
        text="{:.0f}".format,
        note="steps: mean length of an evaluation episode, control steps",
    )
    shaped_return: float = metric(NAN, mean, title="shaped return")
    env_steps: int = metric(0, total, title="env-steps", text="{:,}".format, if_different=True)
    unstable_resets: int = metric(0, total)
    training_episodes: int = metric(0, total)
    contact_overflows: int = metric(0, total)
    stopped_at: int = metric(0, greatest)
    reason: str = metric("", first)
    ended: str = metric("", counts)
    half_step_fitness: float = metric(NAN, mean)
    hacked: str = metric("", first)


METRICS: dict[str, Metric] = {each.name: each.metadata["metric"] for each in fields(Metrics)}


def is_known(value: Any) -> bool:
    """Return whether a metric was measured: counts and texts are 0 and empty before, other numbers NaN."""
    return value == value if isinstance(value, float) else bool(value)
