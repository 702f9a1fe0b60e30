"""Numbers of the study from its records: pure functions."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, stdev

from bench.records import Record

from envcoder_bench.results.last_quarter import HALF, QUARTER
from envcoder_bench.results.statistics import spearman
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNSHAPED

Scores = list[float]
TOPS = (1, 5, 10)
ENOUGH = 0.9  # Spearman's correlation with the reference


def known(fitness: Iterable[float | None]) -> Scores:
    """Return the numbers without the None of failed trainings."""
    return [x for x in fitness if x is not None]


def trainings(records: Sequence[Record], kind: str) -> list[list[Record]]:
    """Return the evaluations of each training, in order: the last complete one of its facts, else the last."""
    facts = ("kind", "task", "role", "envs", "iterations", "seeds", "first_seed", "overrides", "candidates")
    by_facts: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for record in records:
        if record["kind"] == kind and "iteration" in record:
            key = str([record.get(name) for name in facts]), str(record.get("label", ""))
            run = f"{record['complete']} {record.get('date', '')}"
            by_facts.setdefault(key, {}).setdefault(run, []).append(record)
    chosen = [runs[max(runs)] for runs in by_facts.values()]  # True sorts after False
    return [sorted(training, key=lambda r: r["iteration"]) for training in chosen]


def longest(runs: Sequence[list[Record]]) -> dict[str, list[Record]]:
    """Return for each task the training with most env-steps, of those with most seeds."""
    by_task: dict[str, list[Record]] = {}
    for training in sorted(runs, key=lambda points: (points[-1]["seeds"], points[-1]["env_steps"])):
        by_task[training[-1]["task"]] = training
    return by_task


# components


def shares(last: Record) -> dict[str, float]:
    """Return each group's mean as a share of the human baseline's, over the seeds that both have; NaN of 0."""
    by_name = {}
    for name, fitness in last["fitness"].items():
        others = last["fitness"].get(HUMAN, [])
        pairs = [(x, y) for x, y in zip(fitness, others) if x is not None and y is not None]
        if pairs:
            above, below = map(math.fsum, zip(*pairs))
            by_name[name] = above / below if below else math.nan
    return by_name


# ranks


@dataclass(frozen=True)
class Agreement:
    """How well a cheap setting ranks.

    Attributes:
        spearman: correlation with the reference, the mean over the choices of seeds.
        tops: by number, the share of choices in which the reference's best is among so many of the first.
        worth: by number, the reference's fitness of the best among so many of the first, the mean over the choices.
        candidates: those that both have.
        env_steps: of each candidate, all its seeds.
    """

    envs: int
    iteration: int
    seeds: int
    spearman: float
    tops: dict[int, float]
    worth: dict[int, float]
    candidates: int
    env_steps: int


def means(record: Record, seeds: Sequence[int]) -> dict[str, float]:
    """Return the mean fitness over these positions of seeds of each candidate that has all; without baselines."""
    by_name = {}
    for name, fitness in record["fitness"].items():
        values = [fitness[k] for k in seeds]
        if name not in BASELINES and None not in values:
            by_name[name] = mean(values)
    return by_name


def agreement(cheap: Record, reference: Record, seeds: int) -> Agreement:
    """Compare an evaluation of a cheap training with the reference, for all choices of so many of its seeds.

    An evaluation of the reference itself is compared with the end of the reference's other seeds.
    """
    itself = cheap["role"] == "reference"
    every = range(reference["seeds"])
    correlations, hits, worth = [], {top: [] for top in TOPS}, {top: [] for top in TOPS}
    both = 0
    for chosen in combinations(range(cheap["seeds"]), seeds):
        true = means(reference, [k for k in every if not itself or k not in chosen])
        estimates = means(cheap, chosen)
        shared = [name for name in estimates if name in true]
        both = len(shared)
        correlations.append(spearman(estimates, true))
        order = sorted(shared, key=lambda name: estimates[name], reverse=True)
        best = max(shared, key=lambda name: true[name])
        rank = sum(estimates[name] > estimates[best] for name in shared)  # from 0; equal candidates do not count
        for top in TOPS:
            hits[top].append(rank < top)
            worth[top].append(max(true[name] for name in order[:top]))
    tops, worths = ({top: mean(values) for top, values in by_top.items()} for by_top in (hits, worth))
    return Agreement(
        cheap["envs"], cheap["iteration"], seeds, mean(correlations), tops, worths, both, seeds * cheap["env_steps"],
    )  # fmt: skip


def reliability(reference: Record) -> float:
    """Return the mean correlation between two seeds of a record; NaN for a single seed."""
    every = [means(reference, [k]) for k in range(reference["seeds"])]
    pairs = [spearman(x, y) for x, y in combinations(every, 2)]
    return mean(pairs) if pairs else math.nan


def cheapest(found: Sequence[Agreement]) -> Agreement | None:
    """Return the setting with the fewest env-steps that agrees enough; None if no setting does."""
    enough = [setting for setting in found if setting.spearman >= ENOUGH]
    return min(enough, key=lambda setting: setting.env_steps, default=None)


# the bank of score-model


@dataclass(frozen=True)
class Calibration:
    """Whether a task of score-model can score, by its frozen bank and the best of it with fresh seeds.

    Attributes:
        agreement: Spearman's correlation between two seeds over the bank.
        best: the candidate with the highest mean over the fresh seeds.
        fitness: means over the fresh seeds of ``human``, ``unshaped`` and the best.
        above_human, above_unshaped: how far the best is above them, in the larger of both deviations of seeds.
    """

    agreement: float
    best: str
    fitness: dict[str, float]
    above_human: float
    above_unshaped: float


def calibration(bank: Record, fresh: Record) -> Calibration:
    """Return what a task's bank and the fresh seeds of its best say."""
    values = {name: known(fitness) for name, fitness in fresh["fitness"].items()}
    tried = [name for name in values if name not in BASELINES and len(values[name]) == fresh["seeds"]]
    best = max(tried, key=lambda name: mean(values[name]))

    def above(baseline: str) -> float:
        spread = max(stdev(values[best]), stdev(values[baseline]))
        return (mean(values[best]) - mean(values[baseline])) / spread if spread else math.nan

    means_of = {name: mean(values[name]) for name in (HUMAN, UNSHAPED, best)}
    return Calibration(reliability(bank), best, means_of, above(HUMAN), above(UNSHAPED))


# lengths


@dataclass(frozen=True)
class Length:
    """A training of some iterations, judged by its last quarter and by a longer one.

    Attributes:
        agreement, truth: Spearman's correlations of its end: with the begin of its last quarter, with the longer one.
    """

    iteration: int
    agreement: float
    truth: float


def judged_lengths(points: Sequence[Record]) -> list[Length]:
    """Return the lengths of a training, up to half of it, that have evaluations as of ``results.last_quarter``.

    The longer training is the last evaluation whose episodes are as long as those of the others.
    """
    short = points[-1].get("settings", {}).get("evaluation.point_steps") and points[-1]["complete"]
    comparable = points[:-1] if short else points
    fitness = {point["iteration"]: means(point, range(point["seeds"])) for point in comparable}
    last, found = max(fitness, default=0), []
    for end in fitness:
        begin = max((k for k in fitness if HALF * end <= k <= QUARTER * end), default=None)
        if begin is not None and 2 * end <= last:
            found.append(Length(end, spearman(fitness[begin], fitness[end]), spearman(fitness[end], fitness[last])))
    return [length for length in found if not math.isnan(length.agreement + length.truth)]
