"""Writing of a run's results: results.csv, summary.json, terms.csv and policies."""

import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envcoder_bench.core.files import write_atomic
from envcoder_bench.results.csv_log import sort_rows
from envcoder_bench.results.hacks import hacked
from envcoder_bench.results.logs import read_points
from envcoder_bench.results.ranking import race_summary, summary, write_summary
from envcoder_bench.results.rows import FAILED_AT_LOAD, SKIPPED, Result, write_results
from envcoder_bench.run.fitness import fitness_bounds, fitness_meaning
from envcoder_bench.run.folder.checkpoint import Checkpoint, GroupKey
from envcoder_bench.run.folder.ranked import rank_run, ranks_held, write_studies
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.seeds import run_seeds
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.kinds import ACTION_TYPES
from envcoder_bench.shaping.text import definitions
from envcoder_bench.tasks.base import BASELINES, HUMAN

log = logging.getLogger(__name__)


def not_trained(cfg: RunConfig, faults: Mapping[str, Fault]) -> list[Result]:
    """Return a row per candidate and seed for candidates that never trained: failed at load, or skipped."""
    status = {name: SKIPPED if fault.kind == "nothing asked" else FAILED_AT_LOAD for name, fault in faults.items()}
    return [Result(name, seed, status[name], fault=fault) for name, fault in faults.items() for seed in run_seeds(cfg)]


def save_results(folder: RunFolder, sources: Sequence[CandidateSource], results: list[Result]) -> None:
    """Write results.csv: baselines and candidates in order, each seed by seed."""
    order = {name: k for k, name in enumerate(_names(sources))}
    results.sort(key=lambda r: (order[r.candidate], r.seed))
    write_results(folder.results, results)


def _names(sources: Sequence[CandidateSource]) -> list[str]:
    """Return the names of a run's rows in their order: baselines first."""
    names = [source.name for source in sources]
    return [*BASELINES, *(name for name in names if name not in BASELINES)]


def write_policies(
    folder: RunFolder, cfg: RunConfig, policies: Iterable[tuple[GroupKey, bytes]], results: Sequence[Result]
) -> None:
    """Write each policy to policy_seed_<seed>.pth, and that of the candidate's best seed to policy.pth."""
    best: dict[str, Result] = {}
    for result in sorted(results, key=lambda result: result.seed):
        leader = best.get(result.candidate)
        if result.measured and (leader is None or result.fitness > leader.fitness):
            best[result.candidate] = result
    for (name, seed), policy in policies:
        if len(run_seeds(cfg)) > 1:
            write_atomic(folder.candidate(name) / f"policy_seed_{seed}.pth", policy)
        if best[name].seed == seed:
            write_atomic(folder.candidate(name) / "policy.pth", policy)


def _mark_hacked(folder: RunFolder, spec: RunSpec, results: Sequence[Result], short_points: bool) -> list[Result]:
    """Return the rows with why their candidates are hacked."""
    try:
        points = read_points(folder.points) if folder.points.is_file() else []
        bounds = fitness_bounds(spec.task, spec.config)
        reasons = hacked(results, points, short_points, bounds, _other_actions(spec))
    except (OSError, ValueError) as error:  # the results must not depend on it
        log.warning("%s cannot be read, so that nothing is said of hacked rewards: %s", folder.points, error)
        reasons = {}
    return [replace(result, hacked=reasons.get(result.candidate, "")) for result in results]


def _other_actions(spec: RunSpec) -> set[str]:
    """Return the candidates whose actions are not those of the human baseline, with which the untrained policy acts."""
    human_acts = spec.config.baseline == HUMAN
    return {
        source.name
        for source in spec.sources
        if source.name != HUMAN
        and not (human_acts and definitions(source.source).names.keys().isdisjoint(ACTION_TYPES))
    }


def _drop_stale(folder: RunFolder, sources: Sequence[CandidateSource], results: Sequence[Result]) -> None:
    """Delete policies of groups without a fitness, which they had before the run was extended, and old pictures.

    Earlier versions drew these, and they would show the results before the run was extended or resumed.
    """
    for name in ("ranking", "learning_curves", "race", *(f"terms_{source.name}" for source in sources)):
        (folder.path / f"{name}.png").unlink(missing_ok=True)
    measured = {result.candidate for result in results if result.measured}
    for result in results:
        if not result.measured:
            (folder.candidate(result.candidate) / f"policy_seed_{result.seed}.pth").unlink(missing_ok=True)
        if result.candidate not in measured:
            (folder.candidate(result.candidate) / "policy.pth").unlink(missing_ok=True)


def finish(folder: RunFolder, spec: RunSpec, saved: Checkpoint, available: int) -> None:
    """Write the files of a complete run; ``available`` is the memory in bytes."""
    cfg, sources, results = spec.config, spec.sources, saved.results
    meaning = fitness_meaning(spec)
    short_points = cfg.evaluation.point_steps is not None and not cfg.evaluation.record
    results = _mark_hacked(folder, spec, results, short_points)
    # the ranking
    ranked = rank_run(folder, cfg, results)
    save_results(folder, sources, results)
    _drop_stale(folder, sources, results)
    paths = {"results": folder.results.name, "candidates": "candidates"}
    # sort the logs as a run of one wave writes them
    if folder.curves.is_file():
        for log in filter(Path.is_file, folder.logs):
            sort_rows(log, _names(sources))
        paths.update((log.stem, log.name) for log in folder.logs)
        paths.update(tensorboard=folder.tensorboard.name)
        paths.update(write_studies(folder, cfg, sources, results))
    # the race
    race = {}
    if cfg.race.enabled and saved.decided:
        race["race"] = race_summary(results, saved.decided, cfg.learning_iterations)
    # summary.json, with which the run is complete
    sizes = {"available": available, "estimated": saved.needed, "measured": saved.peak}
    env_steps = sum(result.env_steps for result in results)
    held = ranks_held(folder, cfg, results)
    facts = {
        "task": cfg.task.name,
        "fitness_meaning": meaning,
        "seeds": list(run_seeds(cfg)),
        "num_envs_per_candidate": cfg.num_envs_per_candidate,
        "iterations": cfg.learning_iterations,
        "ranks_last_quarter": None if held is None else round(held.agreement, 4),
        "env_steps": env_steps,  # these and the time also before the run was resumed
        "wall_time": round(saved.seconds, 3),
        "env_steps_per_second": round(env_steps / saved.seconds, 1) if saved.seconds > 0 else None,
        "memory": {"waves": saved.waves, **{f"{name}_gib": round(size / 2**30, 3) for name, size in sizes.items()}},
        **race,
    }
    folder.record_end()
    write_summary(folder.summary, summary(ranked, facts, paths))  # last: a run with a summary is complete
    folder.checkpoint.unlink(missing_ok=True)
    shutil.rmtree(folder.jobs, ignore_errors=True)
