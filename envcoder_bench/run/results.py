"""What came of a run: results.csv, the ranking, its pictures and the winners' checkpoints."""

from __future__ import annotations

import math
import shutil
import sys
from typing import Any, Sequence

from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import note
from envcoder_bench.core.shell import shown
from envcoder_bench.env.evaluation import Episodes
from envcoder_bench.report.csv_log import sort_rows
from envcoder_bench.report.curves import read_curves
from envcoder_bench.report.plots import plot_learning_curves, plot_ranking
from envcoder_bench.report.ranking import (
    Ranked,
    RunInfo,
    mean_interval,
    rank,
    read_ranking,
    summary,
    write_summary,
)
from envcoder_bench.report.results import (
    FAILED,
    FAILED_AT_LOAD,
    OK,
    RUNNING,
    SKIPPED,
    Result,
    read_results,
    write_results,
)
from envcoder_bench.report.table import render_table
from envcoder_bench.run.checkpoint import Checkpoint, save_state
from envcoder_bench.run.fitness import fitness_meaning
from envcoder_bench.run.folder import CandidateSource, RunFolder
from envcoder_bench.run.session import RunObserver
from envcoder_bench.shaping.contract import CandidateError, none_asked

PHYSICS = ("unstable_resets", "training_episodes", "contact_overflows")  # counted for each group
RANKING, LEARNING_CURVES = "ranking.png", "learning_curves.png"


def not_trained(cfg: DictConfig, failed: dict[str, CandidateError]) -> list[Result]:
    """A row per candidate and seed for those that never trained: they failed, or define no function that was asked."""
    status = {name: SKIPPED if none_asked(error) else FAILED_AT_LOAD for name, error in failed.items()}
    return [Result(name, seed, status[name], error=str(error)) for name, error in failed.items() for seed in seeds(cfg)]


def seeds(cfg: DictConfig) -> range:
    """The seeds of a run."""
    return range(cfg.seed, cfg.seed + cfg.seeds)


def trained(observer: RunObserver) -> list[Result]:
    """A row per group from the last evaluation; ``running`` while there is training to do."""
    stats = observer.env.stats
    returns = stats.last_return.tolist()
    counts = {name: getattr(stats, name).tolist() for name in PHYSICS}
    failures = observer.failures()
    status = OK if observer.complete else RUNNING
    results = []
    for g, group in enumerate(observer.groups):
        known: dict[str, Any] = dict(status=status, env_steps=observer.env_steps(g))
        known.update((name, own[g]) for name, own in counts.items())
        if g in failures or observer.episodes is None:
            known.update(status=FAILED, error=str(failures.get(g, "")))
        else:
            known.update(shaped_return=None if math.isnan(returns[g]) else returns[g], **_scores(observer.episodes, g))
        results.append(Result(group.name, group.seed, **known))
    return results


def _scores(episodes: Episodes, group: int) -> dict[str, Any]:
    fitness = episodes.fitness[group].double().tolist()
    mean, low, high = mean_interval(fitness)
    return {
        "fitness": mean,
        "fitness_ci_low": low,
        "fitness_ci_high": high,
        "episodes": len(fitness),
        "episode_length": float(episodes.length[group].double().mean()),
    }


def save_results(folder: RunFolder, sources: Sequence[CandidateSource], results: list[Result]) -> None:
    """Write results.csv: baselines and candidates in their order, each seed by seed."""
    order = {source.name: k for k, source in enumerate(sources)}
    results.sort(key=lambda r: (order[r.candidate], r.seed))
    write_results(folder.results, results)


def export_policies(folder: RunFolder, observer: RunObserver, results: Sequence[Result]) -> None:
    """Write each group's policy: policy.pth if it is of its candidate's best seed in ``results``, and by its seed."""
    best: dict[str, Result] = {}
    for result in results:
        leader = best.get(result.candidate)
        if result.measured and (leader is None or result.fitness > leader.fitness):
            best[result.candidate] = result
    measured = {(r.candidate, r.seed) for r in results if r.measured}
    for g, group in enumerate(observer.groups):
        if (group.name, group.seed) not in measured:
            continue
        checkpoint = observer.agent.export(g)
        if observer.cfg.seeds > 1:
            save_state(folder.candidate(group.name) / f"policy_seed_{group.seed}.pth", checkpoint)
        if best[group.name].seed == group.seed:
            save_state(folder.candidate(group.name) / "policy.pth", checkpoint)


def finish(
    folder: RunFolder,
    cfg: DictConfig,
    sources: Sequence[CandidateSource],
    saved: Checkpoint,
    available: int,
) -> int:
    """Write everything, print the ranking and return the exit code; ``available`` is the memory in bytes."""
    results = saved.results
    meaning = fitness_meaning(cfg, folder.read_fitness(cfg))
    save_results(folder, sources, results)
    ranked = rank(results)
    paths = {"results": folder.results.name, "candidates": "candidates"}
    if folder.curves.is_file():
        for log in (folder.curves, folder.components, folder.points):
            sort_rows(log)
        curves, task = read_curves(folder.curves), cfg.task.name
        plot_learning_curves(curves, ranked, folder.path / LEARNING_CURVES, task, meaning)
        plot_ranking(ranked, folder.path / RANKING, task, meaning)
        paths.update(curves=folder.curves.name, components=folder.components.name, points=folder.points.name)
        paths.update(tensorboard=folder.tensorboard.name)
        paths.update(learning_curves=LEARNING_CURVES, ranking=RANKING)
    sizes = {"available": available, "estimated": saved.needed, "measured": saved.peak}
    info = RunInfo(
        task=cfg.task.name,
        fitness_meaning=meaning,
        seeds=list(seeds(cfg)),
        num_envs_per_candidate=cfg.num_envs_per_candidate,
        iterations=cfg.learning_iterations,
        env_steps=sum(result.env_steps for result in results),
        wall_time=saved.seconds,
        paths=paths,
        memory={"waves": saved.waves, **{f"{name}_gib": round(size / 2**30, 3) for name, size in sizes.items()}},
    )
    write_summary(folder.summary, summary(ranked, info))  # last: a run with a summary is complete
    folder.checkpoint.unlink(missing_ok=True)
    note("the ranking\n" + render_table(ranked, meaning))
    show(folder, ranked, meaning)
    return exit_code(ranked)


def exit_code(ranked: Sequence[Ranked]) -> int:
    """0 if any candidate that is no baseline has a fitness, else 1; without candidates the baselines count."""
    own = [row for row in ranked if not row.baseline and row.status != SKIPPED] or ranked
    return 0 if any(row.rank is not None for row in own) else 1


def show(folder: RunFolder, ranked: Sequence[Ranked], meaning: str) -> None:
    """Print the ranking by the fitness of this ``meaning``, and where the run's files are."""
    width = max(80, min(120, shutil.get_terminal_size((100, 24)).columns))
    print("\n" + render_table(ranked, meaning, width, bold=sys.stdout.isatty()))
    for name in (RANKING, LEARNING_CURVES, "results.csv", "candidates"):
        if (folder.path / name).exists():
            print(shown(folder.path / name))


def show_again(folder: RunFolder, cfg: DictConfig) -> int:
    """Print what came of a run that is complete; returns its exit code.

    Raises:
        UserError: neither of the two files that hold its ranking can be read.
    """
    ranked = _read_ranking(folder)
    show(folder, ranked, fitness_meaning(cfg, folder.read_fitness(cfg)))
    for text in folder.notes:
        print(f"{folder.path}: {text}", file=sys.stderr)
    print(f"\nthe run in {shown(folder.path)} is complete: there was nothing left to do", file=sys.stderr)
    return exit_code(ranked)


def _read_ranking(folder: RunFolder) -> list[Ranked]:
    """The ranking from results.csv; where that is damaged, from summary.json, with a note."""
    found: dict[str, list[Ranked]] = {}
    damage: dict[str, str] = {}
    for path, read in ((folder.results, lambda path: rank(read_results(path))), (folder.summary, read_ranking)):
        try:
            found[path.name] = read(path)
        except OSError as error:
            damage[path.name] = f"{path.name} cannot be read ({error.strerror})"
        except ValueError as error:
            damage[path.name] = f"{path.name} is damaged ({error})"
    results, recorded = found.get(folder.results.name), found.get(folder.summary.name)
    if results is not None and recorded is not None and len(results) < len(recorded):
        damage[folder.results.name] = f"{folder.results.name} is damaged (rows are missing)"
        results = None
    if results is None and recorded is None:
        raise UserError(f"--resume {folder.path}: {' and '.join(damage.values())}: put back a copy of one of them")
    used = folder.results.name if results is not None else folder.summary.name
    folder.notes += [f"{what}: the ranking is that of {used}" for what in damage.values()]
    return results if results is not None else recorded or []
