"""The ranking of candidates, and how sure it is, from the rows of results.csv."""

import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.words import counted, decimal_places, join_words
from envcoder_bench.results.fitness_model import Difference, FitnessModel
from envcoder_bench.results.logs import Point
from envcoder_bench.results.metrics import METRICS, Metrics
from envcoder_bench.results.rows import (
    FAILED,
    FAILED_AT_LOAD,
    NAN,
    OK,
    RUNNING,
    SKIPPED,
    STOPPED,
    Result,
    fewest_episodes,
    whole_fitness,
)
from envcoder_bench.results.statistics import LEVEL, UNBOUNDED, Evaluation, corrected, mean_or_nan
from envcoder_bench.results.tie_groups import tie_groups
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tasks.base import BASELINES, HUMAN, UNTRAINED


@dataclass(frozen=True)
class Ranked(Metrics):
    """One candidate over its seeds. Without any fitness ``rank`` is None and the numbers are NaN.

    The metrics are joined as Metrics says. The fitness of a candidate that a race stopped is that of the iteration. It
    is not compared with the baseline's, and its rank is below all that went on.

    Attributes:
        rank: place in the ranking, from 1; candidates that nothing tells apart share a place.
        status: one of ``rows.STATUSES``, or how many of the seeds have a fitness, e.g. ``2/3 seeds``.
        fitness, fitness_ci_low, fitness_ci_high: mean and 95 % interval.
        interval_over: ``seeds``, ``episodes`` (in a run of a single seed), or empty without an interval.
        seeds: the seeds with a fitness, over which means are taken.
        lost_seeds: number of seeds without one, of a candidate that has others; it ranks behind those that lost none.
        vs_human, vs_human_ci_low, vs_human_ci_high: difference to the human baseline, over the seeds that both have
            (NaN for the baseline itself); the interval needs a run with at least two seeds.
        vs_human_p: p-value of this difference, corrected for the number of candidates by Holm's method, and for looks
            at the run, see ``statistics.look_level``; NaN for baselines.
        tie_groups: the groups, from 0, of candidates that cannot be told apart, of which it is one: two candidates
            differ beyond chance among all pairs if and only if they share none; empty in a run of a single seed.
        contender: whether it is one of the candidates that hold the best with a probability of 95 %.
        expected, expected_ci_low, expected_ci_high: fitness to be expected on new seeds, and its 95 % interval: the
            mean of the first of many is higher, because its seeds were lucky, too. They depend on all candidates, so
            that results.csv does not have them. NaN in a run of a single seed.
        unseen: share of its seeds that may have an outcome unlike those seen, at 95 %; intervals and ``vs_human_p``
            allow for it: such a seed may be at a bound of the fitness or, without bounds, as the untrained policy.
        steps_to_tie: env-steps of a seed until the fitness that it shares with other candidates; NaN without them.
        faults: the different faults, in the order of the seeds.
        run: the label of its run in a comparison of several, with which ``candidate`` begins: ``RUN: NAME``.
    """

    rank: int | None
    candidate: str
    status: str
    fitness: float = NAN
    fitness_ci_low: float = NAN
    fitness_ci_high: float = NAN
    interval_over: str = ""
    seeds: tuple[int, ...] = ()
    lost_seeds: int = 0
    vs_human: float = NAN
    vs_human_ci_low: float = NAN
    vs_human_ci_high: float = NAN
    vs_human_p: float = NAN
    tie_groups: tuple[int, ...] = ()
    contender: bool = False
    expected: float = NAN
    expected_ci_low: float = NAN
    expected_ci_high: float = NAN
    unseen: float = NAN
    steps_to_tie: float = NAN
    faults: tuple[Fault, ...] = ()
    run: str = ""

    @property
    def name(self) -> str:
        """The candidate's name in its run."""
        return self.candidate.removeprefix(f"{self.run}: ") if self.run else self.candidate

    @property
    def baseline(self) -> bool:
        return self.name in BASELINES

    @property
    def unstable_share(self) -> float:
        """Share of the training episodes that ended in a physics blow-up; NaN if episodes were not counted."""
        return self.unstable_resets / self.training_episodes if self.training_episodes else NAN

    @property
    def significant(self) -> bool:
        """Whether it differs from the human baseline, beyond chance among all candidates."""
        return self.vs_human_p < LEVEL

    @property
    def errors(self) -> tuple[str, ...]:
        """The faults as texts."""
        return tuple(map(str, self.faults))

    @property
    def fault(self) -> Fault | None:
        """The first fault; None without any."""
        return self.faults[0] if self.faults else None

    @property
    def error(self) -> str:
        """The first fault as text; empty without any."""
        return str(self.fault or "")


def entrants(names: Iterable[str], variants: Container[str] = ()) -> str:
    """Return ``1 candidate, 9 variants and 2 baselines``; the untrained policy is none of them."""
    names = [name for name in names if name != UNTRAINED]
    baselines, varied = sum(name in BASELINES for name in names), sum(name in variants for name in names)
    own = len(names) - baselines - varied
    words = [counted(own, "candidate")] if own or not baselines else []
    more = ((varied, "variant"), (baselines, "baseline"))
    return join_words([*words, *(counted(number, noun) for number, noun in more if number)])


def failed_of(failed: Iterable[str], names: Iterable[str]) -> str:
    """Return ``2 of 7 candidates``, and how many baselines failed, if any."""
    failed, names = [*failed], [name for name in names if name != UNTRAINED]
    words = []
    for noun, is_baseline in (("candidate", False), ("baseline", True)):
        lost = sum((name in BASELINES) is is_baseline for name in failed)
        if lost:
            words.append(f"{lost:,} of {counted(sum((name in BASELINES) is is_baseline for name in names), noun)}")
    return join_words(words)


def rank(
    results: Sequence[Result],
    bounds: tuple[float, float] = UNBOUNDED,
    evaluation: Evaluation | None = None,
    points: Sequence[Point] = (),
    looks: int = 1,
) -> list[Ranked]:
    """Rank candidates by mean fitness over seeds, best first.

    Candidates that lost a seed come after those that did not, then those that a race stopped, then those without
    fitness. Equal fitness, as it is shown, is told apart by the env-steps until it was reached; otherwise candidates
    share a place. How sure the numbers are says ``statistics.FitnessModel``.

    Args:
        bounds: the least and the greatest fitness of an episode.
        evaluation: the episodes' fitness in the final evaluation by candidate and seed.
        points: the evaluations in the course of the training.
        looks: how often the candidates were tested, this time included: a run that is extended is tested again.
    """
    results = sorted(results, key=lambda row: (row.candidate, row.seed))
    by_candidate: dict[str, list[Result]] = {}
    for result in results:
        by_candidate.setdefault(result.candidate, []).append(result)
    # what is known of the candidates: one model, and another one of untrained policies
    model = fitness_model(results, bounds, evaluation)
    models = {UNTRAINED: fitness_model(results, bounds, evaluation, untrained=True)}
    whole = whole_fitness(results)
    versus = _versus_human(model, whole)
    rows = [
        _over_seeds(rows, models.get(name, model), whole, versus.get(name, Difference()))
        for name, rows in by_candidate.items()
    ]
    # p-values of all candidates together
    candidates = [row for row in rows if row["candidate"] not in BASELINES]
    for row, p in zip(candidates, corrected([row["vs_human_p"] for row in candidates], looks)):
        row["vs_human_p"] = p
    contenders = set(model.contenders())
    for row in rows:
        row["vs_human_p"] = NAN if row["candidate"] in BASELINES else row["vs_human_p"]
        name = row["candidate"]
        row["contender"] = name in contenders
        expected = model.expected.get(name, (NAN, NAN, NAN))
        row.update(zip(("expected", "expected_ci_low", "expected_ci_high"), expected))
        row["unseen"] = model.unseen(name) if name in model.names else NAN
    # order, and places that equal candidates share
    measured = [row for row in rows if row["seeds"]]
    decimals = decimal_places([row["fitness"] for row in measured])
    steps = _steps_to_ties(measured, points, decimals)
    for row in measured:
        row["steps_to_tie"] = steps.get(row["candidate"], NAN)
    keys = {row["candidate"]: (*_tier(row, decimals), row["steps_to_tie"]) for row in measured}
    keys = {name: tuple(math.inf if x != x else x for x in key) for name, key in keys.items()}
    measured.sort(key=lambda row: keys[row["candidate"]])  # stable: those that share a place are in the order of names
    if model.has_spread:
        _add_tie_groups(measured, model, looks)
    places = [keys[row["candidate"]] for row in measured]
    ranked = [Ranked(rank=places.index(keys[row["candidate"]]) + 1, **row) for row in measured]
    return ranked + [Ranked(rank=None, **row) for row in rows if not row["seeds"]]


def fitness_model(
    results: Sequence[Result],
    bounds: tuple[float, float] = UNBOUNDED,
    evaluation: Evaluation | None = None,
    untrained: bool = False,
) -> FitnessModel:
    """Return what a run knows of its candidates whose training is complete; arguments as of ``rank``.

    Args:
        untrained: of the untrained policies instead, whose seeds say nothing of those of trained ones.
    """
    rows = sorted(results, key=lambda row: (row.candidate, row.seed))
    fitness = whole_fitness(row for row in rows if (row.candidate == UNTRAINED) == untrained)
    failed = mean_or_nan([row.fitness for row in results if row.candidate == UNTRAINED and row.measured])
    return FitnessModel(fitness, evaluation, bounds, fewest_episodes(results), NAN if untrained else failed)


def _add_tie_groups(measured: Sequence[dict[str, Any]], model: FitnessModel, looks: int) -> None:
    names = {*model.names}
    compared = [row for row in measured if row["candidate"] in names]
    groups = tie_groups(model.told_apart([row["candidate"] for row in compared], looks))
    for k, row in enumerate(compared):
        row["tie_groups"] = tuple(number for number, group in enumerate(groups) if k in group)


def _tier(row: dict[str, Any], decimals: int) -> tuple[float, bool, float]:
    """Return the sort key of a candidate before ties are told apart; lower is better."""
    stopped = -row["stopped_at"] if row["stopped_at"] else -math.inf
    return stopped, row["lost_seeds"] > 0, -round(row["fitness"], decimals) + 0.0


def _steps_to_ties(rows: Sequence[dict[str, Any]], points: Sequence[Point], decimals: int) -> dict[str, float]:
    """Return the env-steps until the fitness that candidates share, as it is shown, of those that share one."""
    tiers: dict[Any, list[str]] = {}
    for row in rows:
        tiers.setdefault(_tier(row, decimals), []).append(row["candidate"])
    shared = {name: -tier[2] for tier, names in tiers.items() if len(names) > 1 for name in names}
    courses: dict[str, dict[int, list[float]]] = {}
    for point in points:
        if point.candidate in shared:
            courses.setdefault(point.candidate, {}).setdefault(point.env_steps, []).append(point.fitness)
    steps_to_tie = {}
    for name, course in courses.items():
        means = {steps: mean_or_nan(values) for steps, values in course.items()}
        reached = [steps for steps, mean in means.items() if round(mean, decimals) >= shared[name]]
        steps_to_tie[name] = float(min(reached, default=max(means)))
    return steps_to_tie


def _versus_human(model: FitnessModel, whole: dict[str, dict[int, float]]) -> dict[str, Difference]:
    """Return the differences to the baseline of the candidates that share a seed with it, over the seeds of both."""
    human = whole.get(HUMAN, {})
    shared = [name for name, by_seed in whole.items() if name != HUMAN and by_seed.keys() & human.keys()]
    modelled = [name for name in shared if name in model.names]
    versus = dict(zip(modelled, model.differences(modelled, HUMAN) if modelled else []))
    for name in set(shared) - set(modelled):  # the untrained policy, of which the model says nothing
        own = whole[name]
        versus[name] = Difference(mean_or_nan([own[seed] - human[seed] for seed in own.keys() & human.keys()]))
    return versus


def _over_seeds(
    rows: list[Result], model: FitnessModel, whole: dict[str, dict[int, float]], versus: Difference
) -> dict[str, Any]:
    """Return the fields of Ranked that need no other candidate's rank, from a candidate's rows in order of seeds."""
    measured = [r for r in rows if r.measured]
    name = rows[0].candidate
    # fitness: over seeds by the model, of one seed over its episodes
    fitness, low, high = mean_or_nan([r.fitness for r in measured]), NAN, NAN
    if len(measured) == 1 and not model.has_spread:
        low, high = measured[0].fitness_ci_low, measured[0].fitness_ci_high
    elif name in whole:
        fitness, low, high = model.interval(name)
    return dict(
        candidate=name,
        status=_status(rows),
        fitness=fitness,
        fitness_ci_low=low,
        fitness_ci_high=high,
        interval_over="" if math.isnan(low) else "seeds" if model.has_spread else "episodes",
        seeds=tuple(r.seed for r in measured),
        lost_seeds=sum(r.failed for r in rows) if measured else 0,
        vs_human=versus.mean,
        vs_human_ci_low=versus.low,
        vs_human_ci_high=versus.high,
        vs_human_p=versus.p,
        faults=tuple(dict.fromkeys(r.fault for r in rows if r.fault is not None)),
        **{
            name: metric.over_seeds([getattr(row, name) for row in rows], [getattr(row, name) for row in measured])
            for name, metric in METRICS.items()
        },
    )


def _status(rows: list[Result]) -> str:
    if all(r.status == SKIPPED for r in rows):
        return SKIPPED
    failed = [r for r in rows if r.failed]
    if len(failed) == len(rows):
        return FAILED_AT_LOAD if all(r.status == FAILED_AT_LOAD for r in rows) else FAILED
    if failed:
        return f"{len(rows) - len(failed)}/{len(rows)} seeds"
    stopped_at = max(r.stopped_at for r in rows)
    if stopped_at:
        return f"{STOPPED} at {stopped_at}"
    if any(r.status == RUNNING for r in rows):
        return RUNNING
    return OK if all(r.measured for r in rows) else "no fitness"


def summary(ranked: Sequence[Ranked], facts: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of summary.json; unknown numbers are None, because JSON has no NaN.

    Args:
        facts: on the run, by key.
        paths: written files, relative to the run folder.
    """
    candidates = [r for r in ranked if r.rank is not None and not r.baseline]
    return {
        **facts,
        "best_candidate": candidates[0].candidate if candidates else None,
        "share_first_place": [r.candidate for r in candidates[1:] if r.rank == candidates[0].rank],
        "ranking": [_json_row(r) for r in ranked],
        "paths": dict(paths),
    }


def _json_row(ranked: Ranked) -> dict[str, Any]:
    values = asdict(ranked)
    names = [name for name in values if name not in METRICS and name != "run"]
    row = {name: list(values[name]) if isinstance(values[name], tuple) else values[name] for name in [*names, *METRICS]}
    row.update(baseline=ranked.baseline, errors=list(ranked.errors), faults=[fault.data for fault in ranked.faults])
    return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in row.items()}


def race_summary(rows: Sequence[Result], rungs: Sequence[int], iterations: int) -> dict[str, Any]:
    """Return the race of a complete run for summary.json.

    ``alive`` are the candidates in training before the first rung and after each; ``env_steps_share`` is the share of
    the env-steps of all candidates and baselines that a run without a race would have trained on.
    """
    began = {row.candidate: row.stopped_at for row in rows if row.env_steps and row.candidate not in BASELINES}
    alive = [sum(not at or at > rung for at in began.values()) for rung in (0, *rungs)]
    whole = max((row.env_steps for row in rows), default=0)
    trained = [row for row in rows if row.env_steps and row.status != FAILED]
    share = sum(row.env_steps for row in trained) / (whole * len(trained)) if whole else 1.0
    return {
        "rungs": list(rungs),
        "iterations": iterations,
        "alive": alive,
        "env_steps_share": round(share, 4),
    }


def write_summary(path: str | Path, content: dict[str, Any]) -> None:
    """Write summary.json atomically."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
