"""Execution of a run from its last checkpoint to its end: waves are trained, evaluated and saved in turn."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import note
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.report.breakdown import render_breakdown
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.run import results
from envcoder_bench.run.checkpoint import Checkpoint, load_job, save_checkpoint
from envcoder_bench.run.folder import CandidateSource, RunFolder
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.plan import Plan, release, used_bytes
from envcoder_bench.run.profile import RunProfile
from envcoder_bench.run.run_result import RunResult, finished, unfinished
from envcoder_bench.run.session import Session, Wave, open_session

log = logging.getLogger(__name__)

# Hydra, rl_games' registry and redirected streams belong to the process: of several runs in threads, only one at a time
# may use them. Training on a CPU does not need the lock.
ALONE = threading.RLock()


@dataclass
class Training:
    """The remaining part of a run.

    Attributes:
        saved: the last checkpoint, kept up to date.
        resumed: whether the run was begun by another call.
    """

    folder: RunFolder
    cfg: DictConfig
    sources: list[CandidateSource]
    saved: Checkpoint
    reporter: Reporter
    stop: StopRequest
    resumed: bool = False

    def __post_init__(self) -> None:
        self.profile = RunProfile(self.folder.profile, self.cfg) if self.cfg.profile else None

    def see_through(self, plan: Plan) -> RunResult:
        """Train all waves and rank; or stop with a checkpoint if a stop is requested."""
        saved, stopped_at = self.saved, None
        if plan.waves:
            for line in (str(plan), *plan.wide):
                log.info(line)
            saved.needed = max(saved.needed, plan.needed)
            stopped_at = self._train(plan.waves)
        else:
            self._note_software()
        if stopped_at is None:
            with ALONE:
                results.finish(self.folder, self.cfg, self.sources, saved, plan.available)
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

    def _train(self, waves: list[list[Any]]) -> str | None:
        """Train all waves; return the place where training was stopped, or None at the end."""
        saved = self.saved
        total = saved.waves + len(waves)
        logs = self._open_logs()
        stopped_at = None
        try:
            while waves and stopped_at is None:
                if self.stop.by is not None:
                    return f"before wave {saved.waves + 1} of {total}" if total > 1 else "before the first iteration"
                best = max((r for r in saved.results if r.measured), key=lambda r: r.fitness, default=None)
                seen = None if best is None else (best.candidate, best.fitness)
                # no reference to a wave may remain, so that its memory is free for the next one
                stopped_at = self._train_wave(Wave(waves.pop(0), saved.waves + 1, total, seen), logs)
                release(self.cfg.device)
        finally:
            logs.close()
        return stopped_at

    def _note_software(self) -> None:
        """Record the software of a resumed run, once, and warn if it differs from before."""
        if self.resumed:
            self.resumed = False
            different = self.folder.note_software(self.cfg.device, self._machines())
            if different:
                log.warning("%s: %s", self.folder.path, different)

    def _machines(self) -> str | None:
        """The names of the devices, where there are several."""
        return None

    def _open_logs(self) -> RunLogs:
        folder, saved = self.folder, self.saved
        if not saved.begun:
            return RunLogs.begin(folder.path, self.cfg.evaluation.record)
        try:
            kept = saved.iterations(), saved.done, saved.all_rows
            logs = RunLogs.resume(folder.path, *kept, self.cfg.evaluation.record)
        except ValueError as error:
            raise UserError(f"{error}; restore a copy of it, or delete it to continue without those rows") from error
        for name, rows in logs.lost.items():
            log.warning("%s: %s rows from before are lost; the run continues", folder.path / name, rows)
        return logs

    def _train_wave(self, wave: Wave, logs: RunLogs) -> str | None:
        """Train, evaluate and save a wave; return the place where it was stopped, or None if it is complete."""
        with contextlib.ExitStack() as alone:
            alone.enter_context(ALONE)
            session, training = self._open_session(wave, logs)
            if self.cfg.device == "cpu":
                alone.close()  # CUDA graphs are captured, which other threads must not disturb
            self.saved.groups, self.saved.training = [], None
            session.train()
            if session.complete:
                self.saved.rows = self._rows(logs)
                self._finish_wave(session)
                if self.profile is not None:
                    with ALONE:  # it traces
                        self.profile.time_candidates(wave.groups, training)
                if wave.number == wave.total:
                    return None
        if self.stop.by is None:
            return None
        where = f"in wave {wave.number} of {wave.total} " if wave.total > 1 else ""
        return f"{where}after iteration {session.iteration} of {self.cfg.learning_iterations}"

    def _open_session(self, wave: Wave, logs: RunLogs) -> tuple[Session, GroupedVecTask]:
        """Return a session of the wave, restored from the checkpoint if that is of this wave, and its environment."""
        saved = self.saved
        keys = [(group.name, group.seed) for group in wave.groups]
        taken = [job for job in saved.jobs if job.groups == keys]  # of a run on several devices

        def save(state: dict[str, Any]) -> None:
            rows = self._rows(logs)
            save_checkpoint(self.folder.checkpoint, replace(saved, groups=keys, training=state, rows=rows))
            for job in taken:
                job.file.unlink(missing_ok=True)

        hooks = (self.profile, self.reporter, self.stop)
        session = open_session(self.cfg, wave, logs, self._on_evaluation, save, *hooks)
        if keys == saved.groups and saved.training is not None:
            session.restore(saved.training, self.folder.checkpoint)
        for job in taken:
            session.restore(load_job(job.file)[1], job.file)
            saved.jobs.remove(job)
        self._note_software()  # only now, when the checkpoint has been found to fit the config
        return session, session.env

    def _rows(self, logs: RunLogs) -> dict[str, int]:
        """The number of rows of each file, without those of waves that several devices had in training."""
        apart = replace(self.saved, rows={}).all_rows
        return {name: rows - apart.get(name, 0) for name, rows in logs.rows.items()}

    def _on_evaluation(self, session: Session) -> None:
        self.saved.peak = max(self.saved.peak, used_bytes(self.cfg.device))
        results.save_results(self.folder, self.sources, self.saved.results + results.trained(session))

    def _finish_wave(self, session: Session) -> None:
        saved = self.saved
        saved.results += results.trained(session)
        saved.waves += 1
        saved.seconds += session.seconds()
        results.write_policies(self.folder, self.cfg, results.policies(session), saved.results)
        results.save_results(self.folder, self.sources, saved.results)
        save_checkpoint(self.folder.checkpoint, saved)  # last: from now on the wave is not trained again
