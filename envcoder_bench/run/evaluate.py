"""Candidates in, ranked results out: one run from its config to its folder."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterator, Sequence

import torch
from omegaconf import DictConfig

from envcoder_bench.core.errors import Stopped, UserError, user_input
from envcoder_bench.core.files import disk_trouble, refuse_taken
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.run_log import run_log
from envcoder_bench.core.shell import resume_command, shown
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.run import results as outcome
from envcoder_bench.run.checkpoint import Checkpoint, save_checkpoint
from envcoder_bench.run.checks import check_task, check_training, check_values, share_out
from envcoder_bench.run.config import with_defaults
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.folder import CandidateSource, RunFolder
from envcoder_bench.run.inputs import read_candidates, run_config
from envcoder_bench.run.plan import Footprint, Plan, release, used_bytes
from envcoder_bench.run.prepare import Group, baseline_sources, build_task, prepare
from envcoder_bench.run.profile import RunProfile
from envcoder_bench.run.session import RunObserver, Wave, make_agent
from envcoder_bench.shaping.contract import Shaping, none_asked
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.tasks.registry import check_task_name

log = logging.getLogger(__name__)


def start(
    task: str,
    overrides: Sequence[str] = (),
    candidates: Sequence[Path] | None = None,
    candidate_idx: str | None = None,
    num_envs: int | None = None,
    output_dir: Path | None = None,
    command: str = "",
) -> int:
    """Begin a run and see it through.

    Args:
        task: a registered task.
        overrides: ``key=value`` for the config.
        candidates: files or folders; default ``user_functions/<task>``.
        candidate_idx: positions to keep, e.g. ``"0,2,5"``.
        num_envs: environments in all, instead of ``num_envs_per_candidate``.
        output_dir: a new folder; default ``runs/<task>_<time>``.
        command: what goes on with it once it was stopped, for the user to read; default ``eval-shapers --resume``.

    Returns:
        The exit code: 0 ranked, 1 every candidate failed, 130 stopped by a signal.

    Raises:
        UserError: bad input; nothing was written.
    """
    path = (output_dir or _new_folder(task)).absolute()
    with user_input():
        refuse_taken(path)  # first: what follows takes a while
    with run_log() as messages:
        with _stoppable("the run had not begun, and nothing was written"):
            cfg, sources, fitness, saved, plan = _ready(task, overrides, candidates, candidate_idx, num_envs)
            folder = RunFolder.create(path, cfg, sources, fitness)
        messages.open(folder.path)
        if not command:  # else the caller has folders of its own
            log.info("folder: %s", shown(path))
        with _at_work(folder, command), folder.locked():
            return _Run(folder, cfg, sources, saved, command).see_through(plan)


def _ready(
    task: str,
    overrides: Sequence[str],
    candidates: Sequence[Path] | None,
    candidate_idx: str | None,
    num_envs: int | None,
) -> tuple[DictConfig, list[CandidateSource], CandidateSource | None, Checkpoint, Plan]:
    """All that a run begins with, before anything is written."""
    cfg = run_config(task, overrides)
    sources = read_candidates(task, candidates, candidate_idx)
    if cfg.baselines:
        sources = baseline_sources(task) + sources
    if num_envs is not None:
        cfg.num_envs_per_candidate = share_out(num_envs, len(sources) * cfg.seeds)
    check_training(cfg)
    _use_one_torch_thread(cfg)
    with user_input():  # the task's YAML is read here
        footprint = Footprint(cfg)
    footprint.refuse_too_large()
    saved = Checkpoint()
    fitness = read_fitness(cfg)
    return cfg, sources, fitness, saved, _prepare(cfg, sources, fitness, footprint, saved)


def resume(path: Path, command: str = "") -> int:
    """Go on with the run in a folder; as ``start`` otherwise."""
    folder = RunFolder.open(path)
    cfg, sources = folder.read()
    cfg = with_defaults(cfg)
    if folder.complete:
        return outcome.show_again(folder, cfg)
    with run_log() as messages, _at_work(folder, command), folder.locked():
        messages.open(folder.path)
        with user_input():
            pick_simulator(cfg.sim, cfg.device)  # the machine may be another one
        for note in folder.notes:
            log.warning("%s: %s", folder.path, note)
        _use_one_torch_thread(cfg)
        saved = folder.load_checkpoint() or Checkpoint()
        try:  # of a run of format 1 it is not known whether somebody changed its config
            with user_input():
                check_task_name(cfg.task.name)
                check_values(cfg)
                check_task(cfg)
                check_training(cfg)
                footprint = Footprint(cfg)
        except UserError as error:
            raise UserError(f"{folder.config}: {error}") from error
        plan = _prepare(cfg, sources, folder.read_fitness(cfg), footprint, saved)
        return _Run(folder, cfg, sources, saved, command, resumed=True).see_through(plan)


@contextmanager
def _stoppable(how: str) -> Iterator[None]:
    """Say at Ctrl-C what was going on and how things stand."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Stopped(f"stopped{f' {stop}' if str(stop) else ''}; {how}") from None


@contextmanager
def _at_work(folder: RunFolder, command: str) -> Iterator[None]:
    """Say at Ctrl-C, or where the disk fails, how to go on with the run."""
    try:
        with _stoppable(f"go on with: {command or resume_command(folder.path)}"):
            yield
    except OSError as error:
        trouble = disk_trouble(error, folder.path)
        if not trouble:
            raise
        if not command:  # else the caller says how to go on
            trouble += f". What was saved before is whole: mend this, and go on with: {resume_command(folder.path)}"
        raise UserError(trouble) from error


def _prepare(
    cfg: DictConfig,
    sources: list[CandidateSource],
    fitness: CandidateSource | None,
    footprint: Footprint,
    saved: Checkpoint,
) -> Plan:
    """Load what is not done yet, and plan its waves: the interrupted one as it was, the others as they fit now.

    Candidates that cannot be evaluated are added to the saved results.
    """
    done = saved.done
    left = [s for s in sources if s.name in BASELINES or any((s.name, seed) not in done for seed in outcome.seeds(cfg))]
    groups, failed = prepare(cfg, left, fitness)
    skipped = [name for name, error in failed.items() if none_asked(error)]
    own = [source.name for source in sources if source.name not in BASELINES]
    if skipped and set(own) <= set(skipped):
        raise UserError(f"there is nothing to evaluate: {failed[skipped[0]]}" + _and_others(len(skipped)))
    if skipped:
        asked = ", ".join(cfg.shaper_types)
        log.warning("skipped, because they define none of %s: %s", asked, ", ".join(skipped))
    for name, error in failed.items():
        if name not in skipped:
            log.warning("candidate %s cannot be evaluated: %s", name, error)
        error.__traceback__ = error.__cause__ = error.__context__ = None  # their frames keep what checking allocated
    release(cfg.device)
    saved.results += [row for row in outcome.not_trained(cfg, failed) if (row.candidate, row.seed) not in done]
    if set(failed) - set(BASELINES) - set(skipped) and all(group.name in BASELINES for group in groups):
        groups = []  # there is nothing to rank
    interrupted = [group for group in groups if (group.name, group.seed) in saved.groups]
    if len(interrupted) < len(saved.groups):
        lost = sorted({name for name, _ in saved.groups} & set(failed))
        raise UserError(f"the run cannot go on: {', '.join(lost)} cannot be loaded any more, see above")
    begun = done.union(saved.groups)
    return footprint.plan([group for group in groups if (group.name, group.seed) not in begun], interrupted)


@dataclass
class _Run:
    """A run in its folder, from where it was saved to its end."""

    folder: RunFolder
    cfg: DictConfig
    sources: list[CandidateSource]
    saved: Checkpoint
    command: str = ""
    resumed: bool = False

    def __post_init__(self) -> None:
        self.profile = RunProfile(self.folder.profile, self.cfg) if self.cfg.profile else None

    def see_through(self, plan: Plan) -> int:
        """Train, evaluate and save wave after wave, and then rank; returns the exit code."""
        saved, stopped_by = self.saved, None
        if plan.waves:
            log.info("\n".join([str(plan), *plan.wide]))
            saved.needed = max(saved.needed, plan.needed)
            stopped_by = self._train(plan.waves)
        else:
            self._note_software()
        if stopped_by is None:
            code = outcome.finish(self.folder, self.cfg, self.sources, saved, plan.available)
        else:
            code = 128 + stopped_by
        if self.profile is not None:
            self.profile.show()
        return code

    def _train(self, waves: list[list[Group]]) -> int | None:
        """Use up the waves; returns the signal that stopped the training, or None at its end."""
        saved = self.saved
        total = saved.waves + len(waves)
        logs = self._open_logs()
        stopped_by = None
        try:
            while waves and stopped_by is None:
                best = max((r for r in saved.results if r.measured), key=lambda r: r.fitness, default=None)
                seen = None if best is None else (best.candidate, best.fitness)
                # nothing here keeps a wave: its memory is that of the next
                stopped_by = self._train_wave(Wave(waves.pop(0), saved.waves + 1, total, seen), logs)
                release(self.cfg.device)
        finally:
            logs.close()
        return stopped_by

    def _note_software(self) -> None:
        """Once: write down with what a resumed run goes on, and say so where that is not what it began with."""
        if self.resumed:
            self.resumed = False
            different = self.folder.note_software(self.cfg.device)
            if different:
                log.warning("%s: %s", self.folder.path, different)

    def _open_logs(self) -> RunLogs:
        folder, saved = self.folder, self.saved
        if not saved.begun:
            return RunLogs.begin(folder.path)
        iteration = saved.training["iteration"] if saved.training else 0
        try:
            logs = RunLogs.resume(folder.path, iteration, saved.done, saved.rows)
        except ValueError as error:
            raise UserError(f"{error}; put back a copy of it, or delete it to go on without those rows") from error
        for name, rows in logs.lost.items():
            log.warning("%s: %s rows from before are lost; the run goes on", folder.path / name, rows)
        return logs

    def _train_wave(self, wave: Wave, logs: RunLogs) -> int | None:
        """Train, evaluate and save a wave; returns the signal that stopped it, or the waves after it."""
        cfg, saved = self.cfg, self.saved
        keys = [(group.name, group.seed) for group in wave.groups]

        def env(num_envs: int, shapings: list[Shaping]) -> GroupedVecTask:
            layout = GroupLayout(len(keys), num_envs)
            return GroupedVecTask(build_task(cfg, layout.num_envs), layout, shapings, [seed for _, seed in keys])

        def save(state: dict[str, Any]) -> None:
            save_checkpoint(self.folder.checkpoint, replace(saved, groups=keys, training=state, rows=logs.rows))

        training = env(cfg.num_envs_per_candidate, [group.shaping for group in wave.groups])
        evaluation = env(cfg.evaluation.num_envs, [group.evaluation for group in wave.groups])
        observer = RunObserver(cfg, wave, training, evaluation, logs, self._on_evaluation, save, self.profile)
        agent = make_agent(cfg, training, observer)
        observer.begin(saved.training, self.folder.checkpoint)
        self._note_software()  # only now: the checkpoint fits to the config
        saved.groups, saved.training = [], None
        try:
            agent.train()
        finally:
            observer.close()
        if observer.complete:
            saved.rows = logs.rows
            self._finish_wave(observer)
            if self.profile is not None:
                self.profile.time_candidates(wave.groups, training)
            if wave.number == wave.total:
                return None
        if observer.stopped_by is not None:
            where = f"in wave {wave.number} of {wave.total} " if wave.total > 1 else ""
            where += f"after iteration {observer.iteration} of {cfg.learning_iterations}"
            command = self.command or resume_command(self.folder.path)
            log.info("stopped %s; go on with: %s", where, command)
        return observer.stopped_by

    def _on_evaluation(self, observer: RunObserver) -> None:
        self.saved.peak = max(self.saved.peak, used_bytes(self.cfg.device))
        outcome.save_results(self.folder, self.sources, self.saved.results + outcome.trained(observer))

    def _finish_wave(self, observer: RunObserver) -> None:
        saved = self.saved
        saved.results += outcome.trained(observer)
        saved.waves += 1
        saved.seconds += observer.seconds()
        outcome.export_policies(self.folder, observer, saved.results)
        outcome.save_results(self.folder, self.sources, saved.results)
        save_checkpoint(self.folder.checkpoint, saved)  # last: from here on the wave is not trained again


def _and_others(count: int) -> str:
    return "" if count == 1 else f"; and {count - 1} more candidate{'s' if count > 2 else ''} like it"


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
