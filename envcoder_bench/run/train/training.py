"""Execution of a run from its last checkpoint to its end."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import note
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.report.breakdown import render_breakdown
from envcoder_bench.report.logs import RunLogs, ScalarLog
from envcoder_bench.report.results import Result
from envcoder_bench.run.folder import results
from envcoder_bench.run.folder.checkpoint import Checkpoint, GroupKey, load_job, pack_job, save_checkpoint
from envcoder_bench.run.folder.run_folder import CandidateSource, RunFolder
from envcoder_bench.run.folder.tracking import finish_tracking, wandb_log
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.prepare.plan import Plan, release, used_bytes
from envcoder_bench.run.result import RunResult, finished, unfinished
from envcoder_bench.run.train.profile import RunProfile
from envcoder_bench.run.train.session import Session
from envcoder_bench.run.train.session_start import open_session
from envcoder_bench.run.train.untrained import due_in, evaluate_untrained
from envcoder_bench.run.train.wave import Wave
from envcoder_bench.tasks.base import UNTRAINED

log = logging.getLogger(__name__)

# Hydra, rl_games' registry and redirected streams belong to the process: of several runs in threads, only one at a time
# may use them. Training on a CPU does not need the lock.
ALONE = threading.RLock()


@dataclass
class Training:
    """The remaining part of a run; what runs on one and on several devices have in common.

    Attributes:
        saved: the last checkpoint, kept up to date.
        resumed: whether the run was begun by another call.
        devices: names of the workers' devices, for a run on several.
    """

    folder: RunFolder
    cfg: DictConfig
    sources: list[CandidateSource]
    saved: Checkpoint
    reporter: Reporter
    stop: StopRequest
    resumed: bool = False
    devices: str | None = None

    def __post_init__(self) -> None:
        self.profile = RunProfile(self.folder.profile, self.cfg) if self.cfg.profile else None
        self._wandb = wandb_log(self.folder, self.cfg, self.sources)

    def run(self, plan: Plan, train: Callable[[list[list[Any]]], str | None]) -> RunResult:
        """Train all waves and rank the candidates, or stop with a checkpoint if a stop is requested.

        Args:
            train: trains waves; returns the place where training was stopped, or None at the end.
        """
        try:
            return self._run(plan, train)
        finally:
            if self._wandb is not None:
                self._wandb.end()

    def _run(self, plan: Plan, train: Callable[[list[list[Any]]], str | None]) -> RunResult:
        saved, stopped_at = self.saved, None
        if plan.waves:
            for line in filter(None, (str(plan), *plan.wide, plan.seeds)):
                log.info(line)
            saved.needed = max(saved.needed, plan.needed)
        if plan.waves or plan.further:
            stopped_at = train(plan.waves)
        else:
            self.note_software()
        if stopped_at is None:
            with ALONE:
                results.finish(self.folder, self.cfg, self.sources, saved, plan.available)
                finish_tracking(self.folder, self.cfg, self.sources, saved.results, self._wandb)
        breakdown = None if self.profile is None else self.profile.finish()
        if breakdown is not None:
            note("the profile\n" + render_breakdown(breakdown, 100))
        if stopped_at is None:
            result = finished(self.folder, self.cfg, True, breakdown)
            note("the ranking\n" + result.table())
            return result
        note(f"stopped {stopped_at}")
        stopped = unfinished(self.folder, self.cfg, saved.results, self.stop.by, stopped_at)
        return replace(stopped, breakdown=breakdown)

    @property
    def best(self) -> tuple[str, float] | None:
        """The best candidate of finished waves, and its fitness."""
        trained = [row for row in self.saved.results if row.measured and row.candidate != UNTRAINED]
        row = max(trained, key=lambda row: row.fitness, default=None)
        return None if row is None else (row.candidate, row.fitness)

    @property
    def trackers(self) -> list[ScalarLog]:
        """The trackers of training besides TensorBoard, which outlive the log files."""
        return [] if self._wandb is None else [self._wandb]

    def note_software(self) -> None:
        """Record the software of a resumed run, once, and warn if it differs from before."""
        if self.resumed:
            self.resumed = False
            different = self.folder.note_software(self.cfg.device, self.devices)
            if different:
                log.warning("%s: %s", self.folder.path, different)

    def open_logs(self) -> RunLogs:
        """Open the run's log files, without rows that were logged after the checkpoint."""
        folder, saved = self.folder, self.saved
        if not saved.begun:
            return RunLogs.begin(folder.path, self.trackers)
        try:
            kept = saved.iterations(), saved.done, saved.all_rows
            logs = RunLogs.resume(folder.path, *kept, self.trackers)
        except ValueError as error:
            raise UserError(f"{error}; restore a copy of it, or delete it to continue without those rows") from error
        for name, rows in logs.lost.items():
            log.warning("%s: %s rows from before are lost; the run continues", folder.path / name, rows)
        return logs

    def evaluated(self, running: Sequence[Result], used: int) -> None:
        """Save the rows of waves in training after an evaluation, and record the memory used, in bytes."""
        self.saved.peak = max(self.saved.peak, used)
        self._save_results(running)

    def evaluate_untrained(
        self, wave: Wave, logs: RunLogs, count: Callable[[], dict[str, int]], running: Sequence[Result] = ()
    ) -> None:
        """Evaluate the untrained policy of each seed of the human baseline in a wave, unless that is done.

        Args:
            count: returns the number of rows of each log file, as of ``Checkpoint.rows``.
            running: rows of other waves in training.
        """
        due = due_in([(group.name, group.seed) for group in wave.groups], self.saved.done)
        if due:
            began = time.monotonic()
            groups = [group for group in wave.groups if (group.name, group.seed) in due]
            rows = evaluate_untrained(self.cfg, groups, logs)
            release(self.cfg.device)
            self.add_untrained(rows, count(), self.saved.seconds + time.monotonic() - began, running)

    def add_untrained(
        self, rows: Sequence[Result], counts: dict[str, int], seconds: float, running: Sequence[Result] = ()
    ) -> None:
        """Add rows of the untrained policy; they are in the next checkpoint, before which they are measured again.

        Args:
            counts: the number of rows of each log file.
            seconds, running: as of ``finish_wave``.
        """
        self.saved.results += rows
        self.saved.rows, self.saved.seconds = counts, seconds
        self._save_results(running)

    def finish_wave(
        self,
        rows: Sequence[Result],
        policies: Iterable[tuple[GroupKey, bytes]],
        seconds: float,
        running: Sequence[Result] = (),
    ) -> None:
        """Save the results and policies of a complete wave.

        Args:
            rows, policies: of the wave.
            seconds: wall-clock time of the run.
            running: rows of other waves in training.
        """
        saved = self.saved
        saved.results += rows
        saved.waves += 1
        results.write_policies(self.folder, self.cfg, policies, saved.results)
        self.save(seconds, running)  # last: from now on the wave is not trained again

    def save(self, seconds: float, running: Sequence[Result] = ()) -> None:
        """Write results.csv and the checkpoint; arguments as of ``finish_wave``."""
        self.saved.seconds = seconds
        self._save_results(running)
        save_checkpoint(self.folder.checkpoint, self.saved)

    def _save_results(self, running: Sequence[Result]) -> None:
        results.save_results(self.folder, self.sources, [*self.saved.results, *running])


def keeps_state(cfg: DictConfig) -> bool:
    """Return whether the state of training is kept at the end of a wave. A race cannot be extended."""
    return cfg.save_state and not cfg.race.enabled


class SequentialWaves:
    """Trains waves one after another in this process."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._folder, self._cfg, self._saved = training.folder, training.cfg, training.saved
        self._stop, self._profile = training.stop, training.profile

    def train(self, waves: list[list[Any]]) -> str | None:
        """Train all waves; return the place where training was stopped, or None at the end."""
        saved = self._saved
        total = saved.waves + len(waves)
        logs = self._training.open_logs()
        stopped_at = None
        try:
            while waves and stopped_at is None:
                if self._stop.by is not None:
                    return f"before wave {saved.waves + 1} of {total}" if total > 1 else "before the first iteration"
                # no reference to a wave may remain, so that its memory is free for the next one
                stopped_at = self._train_wave(Wave(waves.pop(0), saved.waves + 1, total, self._training.best), logs)
                release(self._cfg.device)
        finally:
            logs.close()
        return stopped_at

    def _train_wave(self, wave: Wave, logs: RunLogs) -> str | None:
        """Train, evaluate and save a wave; return the place where it was stopped, or None if it is complete."""
        with contextlib.ExitStack() as alone:
            alone.enter_context(ALONE)
            self._training.evaluate_untrained(wave, logs, lambda: self._rows(logs))
            session, env = self._open_session(wave, logs)
            if self._cfg.device == "cpu":
                alone.close()  # CUDA graphs are captured, which other threads must not disturb
            self._saved.groups, self._saved.training = [], None
            session.train()
            if session.complete:
                self._saved.rows = self._rows(logs)
                seconds = self._saved.seconds + session.seconds()
                if keeps_state(self._cfg):
                    keys = [(group.name, group.seed) for group in wave.groups]
                    self._folder.write_state(keys, pack_job(keys, session.state(), {}))
                self._training.finish_wave(results.trained(session), results.policies(session), seconds)
                if self._profile is not None:
                    with ALONE:  # it traces
                        self._profile.time_candidates(wave.groups, env)
                if wave.number == wave.total:
                    return None
        if self._stop.by is None:
            return None
        where = f"in wave {wave.number} of {wave.total} " if wave.total > 1 else ""
        return f"{where}after iteration {session.iteration} of {self._cfg.learning_iterations}"

    def _open_session(self, wave: Wave, logs: RunLogs) -> tuple[Session, GroupedVecTask]:
        """Return a session of the wave, restored from the checkpoint if that is of this wave, and its environment."""
        saved = self._saved
        keys = [(group.name, group.seed) for group in wave.groups]
        jobs = [job for job in saved.jobs if job.groups == keys]  # of a run on several devices

        def on_evaluation(session: Session) -> None:
            self._training.evaluated(results.trained(session), used_bytes(self._cfg.device))

        def save(state: dict[str, Any]) -> None:
            rows = self._rows(logs)
            save_checkpoint(self._folder.checkpoint, replace(saved, groups=keys, training=state, rows=rows))
            for job in jobs:
                job.file.unlink(missing_ok=True)

        hooks = (self._profile, self._training.reporter, self._stop)
        session = open_session(self._cfg, wave, logs, on_evaluation, save, *hooks)
        if keys == saved.groups and saved.training is not None:
            session.restore(saved.training, self._folder.checkpoint)
        for job in jobs:
            session.restore(load_job(job.file)[1], job.file)
            saved.jobs.remove(job)
        self._training.note_software()  # only now, when the checkpoint has been found to fit the config
        return session, session.env

    def _rows(self, logs: RunLogs) -> dict[str, int]:
        """Return the number of rows of each file, without those of waves that several devices had in training."""
        apart = replace(self._saved, rows={}).all_rows
        return {name: rows - apart.get(name, 0) for name, rows in logs.rows.items()}
