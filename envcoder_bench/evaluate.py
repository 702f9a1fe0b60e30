"""Candidates in, ranked results out: one run from its config to its folder."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence

import torch
from omegaconf import DictConfig

from envcoder_bench import outcome
from envcoder_bench.checks import check_training, check_values, share_out
from envcoder_bench.config import compose_config, project_folder
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.errors import UserError, user_input
from envcoder_bench.groups import GroupLayout
from envcoder_bench.memory import check_memory
from envcoder_bench.preparation import Group, baseline_sources, build_task, prepare
from envcoder_bench.report.results import read_results
from envcoder_bench.run_folder import CandidateSource, RunFolder
from envcoder_bench.shaping.contract import CandidateError, Shaping
from envcoder_bench.shaping.finding import find_candidates, select
from envcoder_bench.shaping.loading import load_source
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.tasks.registry import check_task_name, get_spec
from envcoder_bench.training import RunObserver, make_agent


def start(
    task: str,
    overrides: Sequence[str] = (),
    candidates: Optional[Sequence[Path]] = None,
    candidate_idx: Optional[str] = None,
    num_envs: Optional[int] = None,
    output_dir: Optional[Path] = None,
) -> int:
    """Begin a run and see it through.

    Args:
        task: a registered task.
        overrides: ``key=value`` for the config.
        candidates: files or folders; default ``user_functions/<task>``.
        candidate_idx: positions to keep, e.g. ``"0,2,5"``.
        num_envs: environments in all, instead of ``num_envs_per_candidate``.
        output_dir: a new folder; default ``runs/<task>_<time>``.

    Returns:
        The exit code: 0 ranked, 1 every candidate failed, 130 stopped by a signal.

    Raises:
        UserError: bad input; nothing was written.
    """
    with user_input():
        check_task_name(task)
        cfg = compose_config(task, overrides)
        check_values(cfg)
        found = find_candidates(list(candidates or []), task, _candidates_root())
        if candidate_idx is not None:
            found = select(found, candidate_idx)
        cfg.sim, cfg.device = pick_simulator(cfg.sim, cfg.device)
    try:
        sources = [CandidateSource(path.stem, str(path), load_source(path)) for path in found]
    except OSError as error:
        raise UserError(f"a candidate cannot be read: {error}") from error
    if cfg.baselines:
        sources = baseline_sources(task) + sources
    if num_envs is not None:
        cfg.num_envs_per_candidate = share_out(num_envs, len(sources) * cfg.seeds)
    check_training(cfg)
    with user_input():  # the task's YAML is read here
        check_memory(cfg, len(sources) * cfg.seeds)
    _use_one_torch_thread(cfg)
    prepared = prepare(cfg, sources)
    folder = RunFolder.create((output_dir or _new_folder(task)).resolve(), cfg, sources)
    with folder.locked():
        return _run(folder, cfg, sources, *prepared)


def resume(path: Path) -> int:
    """Go on with the run in a folder; as ``start`` otherwise."""
    folder = RunFolder.open(path.resolve())
    cfg, sources = folder.read()
    if folder.summary.is_file():
        outcome.show(folder, get_spec(cfg.task.name).task_class.fitness_meaning)
        print(f"\nthe run in {path} is complete: there was nothing left to do", file=sys.stderr)
        return outcome.exit_code(read_results(folder.results))
    with user_input():
        pick_simulator(cfg.sim, cfg.device)  # the machine may be another one
    with folder.locked():
        _use_one_torch_thread(cfg)
        return _run(folder, cfg, sources, *prepare(cfg, sources))


def _run(
    folder: RunFolder,
    cfg: DictConfig,
    sources: List[CandidateSource],
    groups: List[Group],
    failed: Dict[str, CandidateError],
) -> int:
    for name, error in failed.items():
        print(f"candidate {name} cannot be evaluated: {error}", file=sys.stderr)
    results = outcome.failed_at_load(cfg, failed)
    seconds = 0.0
    if any(group.name not in BASELINES for group in groups) or not set(failed) - set(BASELINES):

        def on_evaluation(observer: RunObserver) -> None:
            outcome.save_results(folder, sources, results + outcome.trained(observer))

        observer = _train(folder, cfg, groups, on_evaluation)
        if not observer.complete:
            where = f"stopped after iteration {observer.iteration} of {cfg.learning_iterations}"
            print(f"{where}; go on with: eval-shapers --resume {folder.path}", file=sys.stderr)
            return 128 + (observer.stopped_by or 0)
        results += outcome.trained(observer)
        outcome.export_policies(observer, results)
        seconds = observer.seconds()
    return outcome.finish(folder, cfg, sources, results, get_spec(cfg.task.name).task_class.fitness_meaning, seconds)


def _train(
    folder: RunFolder, cfg: DictConfig, groups: List[Group], on_evaluation: Callable[[RunObserver], None]
) -> RunObserver:
    def env(num_envs: int, shapings: List[Shaping]) -> GroupedVecTask:
        layout = GroupLayout(len(groups), num_envs)
        return GroupedVecTask(build_task(cfg, layout.num_envs), layout, shapings, [group.seed for group in groups])

    training = env(cfg.num_envs_per_candidate, [group.shaping for group in groups])
    evaluation = env(cfg.evaluation.num_envs, [group.evaluation for group in groups])
    observer = RunObserver(cfg, folder, groups, training, evaluation, on_evaluation)
    agent = make_agent(cfg, training, observer)
    observer.begin(folder.load_checkpoint())
    try:
        agent.train()
    finally:
        observer.close()
    return observer


def _use_one_torch_thread(cfg: DictConfig) -> None:
    if cfg.device == "cpu":
        torch.set_num_threads(1)  # threads go to the simulator and to the learners, which run side by side


def _new_folder(task: str) -> Path:
    """``runs/<task>_<time>``, with a number behind it where two runs begin in one second."""
    path = first = Path("runs") / f"{task}_{time.strftime('%Y%m%d-%H%M%S')}"
    count = 1
    while path.exists():
        count += 1
        path = first.with_name(f"{first.name}_{count}")
    return path


def _candidates_root() -> Path:
    """The folder whose user_functions/ holds the candidates: the working folder, else where this package is."""
    return Path() if Path("user_functions").is_dir() else project_folder("user_functions").parent
