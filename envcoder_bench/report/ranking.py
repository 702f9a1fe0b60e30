"""The ranking of candidates with confidence intervals, from the rows of results.csv."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Sequence

from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.episodes import Evaluation
from envcoder_bench.report.results import FAILED, FAILED_AT_LOAD, NAN, OK, RUNNING, SKIPPED, STOPPED, Result
from envcoder_bench.report.statistics import UNBOUNDED, chances_of_best, holm, mean_interval, paired_p
from envcoder_bench.tasks.base import BASELINES, HUMAN

LEVEL = 0.05  # of the significance of differences, over all candidates together


@dataclass(frozen=True)
class Ranked:
    """One candidate over its seeds. Without any fitness ``rank`` is None and the numbers are NaN.

    Attributes:
        rank: place in the ranking, from 1.
        status: one of ``results.STATUSES``, or how many seeds failed.
        fitness, fitness_ci_low, fitness_ci_high: mean and 95 % interval.
        interval_over: ``seeds``, ``episodes`` (of a single seed), or empty if there is no interval.
        seeds: the seeds with a fitness, over which means are taken.
        vs_human, vs_human_ci_low, vs_human_ci_high: difference to the human baseline, over the seeds that both have
            (NaN for the baseline itself); the interval needs at least two seeds.
        vs_human_p: p-value of this difference, corrected for the number of candidates by Holm's method; NaN for
            baselines.
        p_best: probability that it is the best of all, by the bootstrap over seeds and episodes; NaN if unknown.
        episode_length, shaped_return: means over ``seeds``.
        episodes, env_steps, unstable_resets, training_episodes, contact_overflows: totals over all seeds.
        errors: the different errors, in the order of the seeds.
        stopped_at, reason: as of Result: the fitness of a candidate that a race stopped is that of this iteration, it
            is not compared with the baseline's, and its rank is below all that went on.
    """

    rank: int | None
    candidate: str
    status: str
    fitness: float = NAN
    fitness_ci_low: float = NAN
    fitness_ci_high: float = NAN
    interval_over: str = ""
    seeds: tuple[int, ...] = ()
    vs_human: float = NAN
    vs_human_ci_low: float = NAN
    vs_human_ci_high: float = NAN
    vs_human_p: float = NAN
    p_best: float = NAN
    episodes: int = 0
    episode_length: float = NAN
    shaped_return: float = NAN
    env_steps: int = 0
    unstable_resets: int = 0
    training_episodes: int = 0
    contact_overflows: int = 0
    errors: tuple[str, ...] = ()
    stopped_at: int = 0
    reason: str = ""

    @property
    def baseline(self) -> bool:
        return self.candidate in BASELINES

    @property
    def unstable_share(self) -> float:
        """Share of the training episodes that ended in a physics blow-up; NaN if episodes were not counted."""
        return self.unstable_resets / self.training_episodes if self.training_episodes else NAN

    @property
    def significant(self) -> bool:
        """Whether it differs from the human baseline, beyond chance among all candidates."""
        return self.vs_human_p < LEVEL

    @property
    def error(self) -> str:
        return self.errors[0] if self.errors else ""


@dataclass
class RunInfo:
    """The facts on a run in summary.json, besides the ranking.

    Attributes:
        env_steps: control steps of all environments, also those before the run was resumed.
        wall_time: seconds, also those before the run was resumed.
        paths: written files, relative to the run folder.
        memory: estimated and measured memory, and the number of waves.
        race: the facts of a race, or None.
    """

    task: str
    fitness_meaning: str
    seeds: Sequence[int]
    num_envs_per_candidate: int
    iterations: int
    env_steps: int
    wall_time: float
    paths: dict[str, str] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    race: dict[str, Any] | None = None


def rank(
    results: Sequence[Result], bounds: tuple[float, float] = UNBOUNDED, evaluation: Evaluation | None = None
) -> list[Ranked]:
    """Rank candidates by mean fitness over seeds, best first; ties by name, candidates without fitness last.

    Candidates that a race stopped come after all that passed the rung, whatever their fitness was. The interval is over
    seeds if at least two have a fitness, otherwise over the episodes of the single seed. Differences to the human
    baseline are paired by seed, because groups of the same seed have the same noise.

    Args:
        bounds: the least and the greatest fitness of an episode, within which intervals are.
        evaluation: the episodes' fitness in the final evaluation by candidate and seed, for ``p_best``.
    """
    by_candidate: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda r: r.seed):
        by_candidate.setdefault(result.candidate, []).append(result)
    human = {r.seed: r.fitness for r in by_candidate.get(HUMAN, []) if r.measured}
    rows = [_over_seeds(by_candidate[name], {} if name == HUMAN else human, bounds) for name in sorted(by_candidate)]
    own = [row for row in rows if row["candidate"] not in BASELINES]
    for row, p in zip(own, holm([row["vs_human_p"] for row in own])):
        row["vs_human_p"] = p
    for row in rows:
        row["vs_human_p"] = NAN if row["candidate"] in BASELINES else row["vs_human_p"]
    trained = [row["candidate"] for row in rows if row["seeds"] and not row["stopped_at"]]
    finished = [(r.candidate, r.seed) for r in results if r.measured and r.candidate in trained]
    # some are missing where a run of an older version was extended
    known = evaluation is not None and all(key in evaluation for key in finished)
    chances = chances_of_best(evaluation, trained) if evaluation and known else {}
    for row in rows:
        row["p_best"] = chances.get(row["candidate"], NAN)
    measured = [r for r in rows if r["seeds"]]
    # a stable sort keeps ties in the order of names
    ranked = sorted(measured, key=lambda r: (-(r["stopped_at"] or math.inf), -r["fitness"]))
    unranked = [r for r in rows if not r["seeds"]]
    return [Ranked(rank=i, **row) for i, row in enumerate(ranked, 1)] + [Ranked(rank=None, **r) for r in unranked]


def _over_seeds(rows: list[Result], human: dict[int, float], bounds: tuple[float, float]) -> dict[str, Any]:
    """Return the fields of Ranked, except the rank, from one candidate's rows in the order of their seeds."""
    measured = [r for r in rows if r.measured]
    fitness, low, high = mean_interval([r.fitness for r in measured], bounds)
    if len(measured) == 1:
        low, high = measured[0].fitness_ci_low, measured[0].fitness_ci_high
    stopped_at = max(r.stopped_at for r in rows)
    differences = [r.fitness - human[r.seed] for r in measured if r.seed in human and not stopped_at]
    difference = mean_interval(differences, (bounds[0] - bounds[1], bounds[1] - bounds[0]))
    returns = [r.shaped_return for r in measured if r.shaped_return is not None and math.isfinite(r.shaped_return)]
    return dict(
        candidate=rows[0].candidate,
        status=_status(rows),
        fitness=fitness,
        fitness_ci_low=low,
        fitness_ci_high=high,
        interval_over="" if math.isnan(low) else "seeds" if len(measured) > 1 else "episodes",
        seeds=tuple(r.seed for r in measured),
        vs_human=difference[0],
        vs_human_ci_low=difference[1],
        vs_human_ci_high=difference[2],
        vs_human_p=paired_p(differences),
        episodes=sum(r.episodes for r in rows),
        episode_length=mean_interval([r.episode_length for r in measured])[0],
        shaped_return=mean_interval(returns)[0],
        env_steps=sum(r.env_steps for r in rows),
        unstable_resets=sum(r.unstable_resets for r in rows),
        training_episodes=sum(r.training_episodes for r in rows),
        contact_overflows=sum(r.contact_overflows for r in rows),
        errors=tuple(dict.fromkeys(r.error for r in rows if r.error)),
        stopped_at=stopped_at,
        reason=next((r.reason for r in rows if r.reason), ""),
    )


def _status(rows: list[Result]) -> str:
    if all(r.status == SKIPPED for r in rows):
        return SKIPPED
    failed = [r for r in rows if r.failed]
    if len(failed) == len(rows):
        return FAILED_AT_LOAD if all(r.status == FAILED_AT_LOAD for r in rows) else FAILED
    if failed:
        return f"{len(failed)}/{len(rows)} seeds failed"
    stopped_at = max(r.stopped_at for r in rows)
    if stopped_at:
        return f"{STOPPED} at {stopped_at}"
    if any(r.status == RUNNING for r in rows):
        return RUNNING
    return OK if all(r.measured for r in rows) else "no fitness"


def summary(ranked: Sequence[Ranked], info: RunInfo) -> dict[str, Any]:
    """Return the content of summary.json; unknown numbers are None, because JSON has no NaN."""
    best = next((r.candidate for r in ranked if r.rank is not None and not r.baseline), None)
    race = {} if info.race is None else {"race": dict(info.race)}
    return {
        "task": info.task,
        "fitness_meaning": info.fitness_meaning,
        "seeds": list(info.seeds),
        "num_envs_per_candidate": info.num_envs_per_candidate,
        "iterations": info.iterations,
        "env_steps": info.env_steps,
        "wall_time": round(info.wall_time, 3),
        "env_steps_per_second": round(info.env_steps / info.wall_time, 1) if info.wall_time > 0 else None,
        "memory": dict(info.memory),
        **race,
        "best_candidate": best,
        "ranking": [_json_row(r) for r in ranked],
        "paths": dict(info.paths),
    }


def _json_row(ranked: Ranked) -> dict[str, Any]:
    row = {key: list(x) if isinstance(x, tuple) else x for key, x in asdict(ranked).items()}
    row["baseline"] = ranked.baseline
    return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in row.items()}


def write_summary(path: str | Path, content: dict[str, Any]) -> None:
    """Write summary.json atomically."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_ranking(path: str | Path) -> list[Ranked]:
    """Read the ranking in summary.json. Raises ValueError if it is not the summary of a run."""
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))["ranking"]
        return [_ranked(row) for row in rows]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not the summary of a run: {error}") from error


def _ranked(row: dict[str, Any]) -> Ranked:
    known: dict[str, Any] = {key: NAN if x is None else x for key, x in row.items() if key not in ("rank", "baseline")}
    known.update(seeds=tuple(row["seeds"]), errors=tuple(row["errors"]))
    return Ranked(rank=row["rank"], **known)
