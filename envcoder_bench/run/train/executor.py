"""Execution of a run: its groups train in waves, which are jobs for workers, from rung to rung to the end.

A run without a race has no rungs. A run on this machine's one device has one worker, in this process. What is done, and
what is in training, is in the run's folder after every step, so that a run resumes wherever it ended.
"""

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import note
from envcoder_bench.core.torch_settings import ALONE
from envcoder_bench.env.trajectories import Trajectories
from envcoder_bench.report.breakdown import render_breakdown
from envcoder_bench.results.logs import RunLogs, read_episodes
from envcoder_bench.results.rows import FAILED, STOPPED, Result, best_mean
from envcoder_bench.run import lint
from envcoder_bench.run.folder import results
from envcoder_bench.run.folder.checkpoint import Checkpoint, GroupKey, SavedJob, sum_counts
from envcoder_bench.run.folder.ranked import rank_run
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.folder.tracking import wandb_log
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.prepare.forecast import training_steps
from envcoder_bench.run.prepare.plan import GroupFacts, Plan
from envcoder_bench.run.result import RunResult, finished, unfinished
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train.parked import ParkedGroups
from envcoder_bench.run.train.profile import RunProfile
from envcoder_bench.run.train.rows import due_in
from envcoder_bench.run.train.rungs import LEAST, asked_rungs, decide
from envcoder_bench.run.train.session import Shared
from envcoder_bench.run.workers.head import Head, JobHandler
from envcoder_bench.run.workers.jobs import Job
from envcoder_bench.run.workers.messages import (
    Evaluated,
    JobCheckpoint,
    Opened,
    Progress,
    RungReached,
    Train,
    Trained,
    TrainingStopped,
    UntrainedEvaluated,
)
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tasks.base import BASELINES, UNTRAINED
from envcoder_bench.tasks.spec import Can
from envcoder_bench.trainers.registry import trainer_class

log = logging.getLogger(__name__)
Best = tuple[str, float] | None  # a candidate and its fitness


@dataclass
class _Wave:
    """A wave that is waiting or in training, as last reported."""

    iteration: int
    env_steps: int = 0
    rows: Sequence[Result] = ()


class Executor(JobHandler):
    """Trains the remaining groups of a run on the workers of a head, and writes what they send to the run's folder.

    Args:
        saved: its last checkpoint, kept up to date.
        resumed: whether the run was begun by another call.
    """

    item = "group"

    def __init__(
        self,
        folder: RunFolder,
        spec: RunSpec,
        saved: Checkpoint,
        head: Head,
        reporter: Reporter,
        stop: StopRequest,
        resumed: bool = False,
    ) -> None:
        self._folder, self._spec, self._saved = folder, spec, saved
        self._cfg = cfg = spec.config
        self._head, self._resumed, self._stop = head, resumed, stop
        self._reporter = reporter
        # a session in this process reports its own progress; several workers are reported together
        self._together = Reporter() if head.is_local else reporter
        self._profile = RunProfile(folder.profile, cfg) if cfg.profile else None
        self._wandb = wandb_log(folder, cfg, spec.sources)
        self._parked = ParkedGroups(folder, saved)
        self._waves: dict[str, _Wave] = {}  # the rung's unfinished waves, by job
        self._end: int = cfg.learning_iterations  # the rung's iteration
        self._num_done = 0  # waves of the rung
        self._env_steps = 0  # all jobs since this process began
        self._reported: dict[str, Best] = {}  # the best candidate of each job, as it last said
        self._stopped_at: str | None = None
        self._seconds_before, self._began = saved.seconds, time.monotonic()

    def run(self, plan: Plan) -> RunResult:
        """Train all groups of the plan and rank the candidates, or stop with a checkpoint if a stop is requested."""
        try:
            return self._run(plan)
        finally:
            if self._wandb is not None:
                self._wandb.end()

    def _run(self, plan: Plan) -> RunResult:
        saved = self._saved
        if self._resumed:
            note(f"goes on: rows done: {len(saved.done)}, groups left: {sum(map(len, plan.waves))}")
        stopped_at = None
        # a run may go on when all groups are trained, for its pages alone
        if plan.waves:
            learner = trainer_class(self._cfg.params).remark(self._cfg.params, training_steps(self._cfg, 1))
            for line in filter(None, (str(plan), *plan.wide, plan.seeds, plan.time, learner)):
                log.info(line)
            saved.needed = max(saved.needed, plan.needed)
            stopped_at = self._train([group for wave in plan.waves for group in wave])
        else:
            self._note_software()
        # pages and tables are of the complete run
        if stopped_at is None:
            with ALONE:
                results.finish(self._folder, self._spec, saved, plan.available)
                if self._wandb is not None:
                    self._wandb.finish(saved.results, rank_run(self._folder, self._cfg, saved.results))
                lint.keep(self._folder, self._spec)
        breakdown = None if self._profile is None else self._profile.finish()
        if breakdown is not None:
            note("the profile\n" + render_breakdown(breakdown, 100))
        if stopped_at is None:
            result = finished(self._folder, self._cfg, True, breakdown)
            note("the ranking\n" + result.table())
            return result
        note(f"stopped {stopped_at}, by {self._stop}")
        stopped = unfinished(self._folder, self._spec, saved.results, self._stop.by, stopped_at)
        return replace(stopped, breakdown=breakdown)

    # train from rung to rung

    def _train(self, groups: Sequence[GroupFacts]) -> str | None:
        """Train groups to the end; return the place where training was stopped, or None."""
        rungs = self._rungs(groups) if self._cfg.race.enabled else []
        ends = [*rungs, self._cfg.learning_iterations]
        for number, end in enumerate(ends, 1):
            alive = [group for group in groups if group.key not in self._saved.done]
            if self._cfg.race.enabled:
                names = {group.name for group in alive if group.name not in BASELINES}
                self._reporter.rung_began(number, len(ends), len(names), self._count(groups))
            stopped_at = self._train_to(end, alive)
            self._parked.drop_superseded()
            if stopped_at is not None:
                return f"in rung {number} of {len(ends)} {stopped_at}" if rungs else stopped_at
            if end in rungs and end not in self._saved.decided:
                self._decide(end, rungs, groups)
        return None

    def _rungs(self, groups: Sequence[GroupFacts]) -> list[int]:
        rungs, count = asked_rungs(self._cfg), self._count(groups)
        if count < LEAST:
            message = "a race needs at least %s candidates, and there are %s: all are trained to the end"
            log.warning(message, LEAST, count)
            return []
        if rungs and Can.REGROUPS not in self._spec.task.can:
            log.info(
                "the state of %s cannot be divided by candidate: after each rung episodes and curricula begin anew",
                self._spec.task.name,
            )
        if not rungs:
            log.warning("the training is too short for a rung, or has too few evaluation.points: nobody is stopped")
        return rungs

    def _count(self, groups: Sequence[GroupFacts]) -> int:
        """Return the number of candidates that began to train."""
        begun = {row.candidate for row in self._saved.results if row.env_steps}
        return len(begun.union(group.name for group in groups).difference(BASELINES))

    def _train_to(self, end: int, groups: Sequence[GroupFacts]) -> str | None:
        """Train groups to the iteration ``end``; return the place where training was stopped, or None."""
        waves = self._plan_waves(end, groups)
        if not waves:
            return None
        self._end, self._num_done = end, 0 if self._cfg.race.enabled else self._saved.waves
        self._logs = self._open_logs()
        self._stopped_at, self._waves = None, {}
        jobs = [Job(tuple(group.key for group in wave), 0.0) for wave in waves]
        for job in jobs:
            checkpoint = self._checkpoint(job)
            job.iteration = self._parked.iteration(job.items[0]) if checkpoint is None else checkpoint.iteration
            # one worker takes the waves in their order, several begin with the longest one
            job.cost = float(len(job.items) * (end - job.iteration)) if not self._head.is_local else 0.0
            self._waves[job.name] = _Wave(job.iteration)
        total = self._num_waves
        self._together.devices_began(len(self._head.workers), total, self._iterations, end * total)
        shared = Shared(self._logs, self._reporter, self._stop, self._profile)
        try:
            with contextlib.nullcontext() if self._head.is_local else self._stop:  # a session in this process enters it
                self._head.run(jobs, self, self._stop, shared)
            self._save()
        finally:
            self._logs.close()
            self._together.wave_ended()
        return self._where() if self._waves else None

    def _plan_waves(self, end: int, groups: Sequence[GroupFacts]) -> list[list[GroupFacts]]:
        """Divide groups that have not reached ``end`` into waves, after those that were interrupted."""
        by_key = {group.key: group for group in groups}
        # waves that were interrupted go on as they were
        interrupted = [job for job in self._saved.jobs if not job.parked]
        in_training = {key for job in interrupted for key in job.groups}
        if end < self._cfg.learning_iterations:  # a resumed race may have been interrupted beyond this rung
            interrupted = [job for job in interrupted if job.iteration < end]
        begun = [[by_key[key] for key in job.groups if key in by_key] for job in interrupted]
        waiting = [
            group for key, group in by_key.items() if key not in in_training and self._parked.iteration(key) < end
        ]
        return self._head.planner.plan(waiting, list(filter(None, begun)), len(self._head.workers)).waves

    def _where(self) -> str:
        """Return the place where training was stopped."""
        total = self._num_waves
        if not self._head.is_local:
            return f"after {self._num_done} of {total} waves"
        if self._stopped_at is not None:
            return self._stopped_at
        return f"before wave {self._num_done + 1} of {total}" if total > 1 else "before the first iteration"

    def _decide(self, rung: int, rungs: Sequence[int], groups: Sequence[GroupFacts]) -> None:
        """Stop candidates; their rows and policies are those of the rung."""
        # who is stopped
        saved, done = self._saved, self._saved.done
        alive = [group for group in groups if group.name not in BASELINES and group.key not in done]
        names = list(dict.fromkeys(group.name for group in alive))
        history = {k: played for k, played in read_episodes(self._folder.episodes).items() if 0 < k <= rung}
        stops = []
        if any(group.key not in history.get(rung, ()) for group in alive):
            log.warning("%s has lost rows of iteration %s: nobody is stopped", self._folder.episodes, rung)
        else:
            stops = decide(self._cfg.race.keep, history, names, self._cfg.learning_iterations, len(rungs))
        reasons = {stop.candidate: f"rank {stop.rank} of {len(names)}: {stop.reason}" for stop in stops}
        # their rows and policies, those of the rung
        stopped = [group.key for group in alive if group.name in reasons]
        for key in stopped:
            row = self._parked.rows[key]
            saved.results.append(replace(row, status=STOPPED, stopped_at=rung, reason=reasons[key[0]]))
        saved.decided.append(rung)
        results.write_policies(self._folder, self._cfg, zip(stopped, self._parked.policies(stopped)), saved.results)
        self._save()  # last: from now on the rung is not decided again
        self._parked.drop_superseded()
        at = f"rung {list(rungs).index(rung) + 1} of {len(rungs) + 1}, iteration {rung}"
        log.info(f"{at}: {len(names) - len(reasons)} of {len(names)} candidates go on")
        for name, reason in reasons.items():
            note(f"stopped {name}: {reason}")

    # totals of the waves of a rung

    @property
    def _num_waves(self) -> int:
        return self._num_done + len(self._waves)

    @property
    def _iterations(self) -> int:
        return self._num_done * self._end + sum(wave.iteration for wave in self._waves.values())

    @property
    def _running(self) -> list[Result]:
        """The last rows of groups that wait at a rung or are in training."""
        training = {row.key: row for wave in self._waves.values() for row in wave.rows}
        done = self._saved.done
        return [row for key, row in {**self._parked.rows, **training}.items() if key not in done]

    @property
    def _best(self) -> Best:
        """The best candidate so far, and its mean fitness over the seeds."""
        rows = [*self._parked.rows.values(), *self._saved.results]
        done = best_mean((row.candidate, row.fitness) for row in rows if row.measured and row.candidate != UNTRAINED)
        reported = [self._reported.get(name) for name in self._waves]
        return max(filter(None, [done, *reported]), key=lambda pair: pair[1], default=None)

    def _report(self) -> None:
        self._together.devices_at_work(len(self._head.workers), self._num_done, self._num_waves)
        self._together.iteration_done(self._iterations, self._env_steps, self._best)

    # jobs

    def request(self, job: Job) -> Train:
        names = {name for name, _ in job.items} | set(BASELINES)
        request = Train(
            job=job.name,
            sources=[source for source in self._spec.sources if source.name in names],
            groups=job.items,
            untrained=due_in(job.items, self._saved.done),
            number=self._num_done + 1,
            total=self._num_waves,
            best=self._best,
            until=None if self._end == self._cfg.learning_iterations else self._end,
            seeds=seed_count(self._cfg),
        )
        # a wave begins where its last checkpoint, else its rung, left it, else anew
        checkpoint = self._checkpoint(job)
        if checkpoint is not None:
            self._note_begin(request, f"iteration {checkpoint.iteration}, {checkpoint.file.name}")
            # a worker in this process reads the file itself: a request stays in memory while its wave trains
            content = None if self._head.is_local else checkpoint.file.read_bytes()
            return replace(request, checkpoint=content, checkpoint_file=str(checkpoint.file))
        if self._parked.kept.issuperset(job.items):  # the worker in this process still has the states of the rung
            return replace(request, checkpoint_file=str(self._folder.jobs), from_rung=True)
        rung = self._parked.iteration(job.items[0])
        if rung:
            self._note_begin(request, f"the rung at iteration {rung}")
            content = self._parked.pack(job.items)
            return replace(request, checkpoint=content, checkpoint_file=str(self._folder.jobs))
        return request

    def _note_begin(self, request: Train, state: str) -> None:
        """Write where a wave goes on to run.log; several workers train waves in no order."""
        number = f"wave {request.number} of {request.total}"
        note(f"{number if self._head.is_local else f'a wave of {len(request.groups)} groups'} goes on from {state}")

    def handle(self, job: Job, message: Any) -> bool:
        if isinstance(message, Opened):
            self._note_software()
        elif isinstance(message, Progress):
            self._update_progress(job, message)
        elif isinstance(message, Evaluated):
            self._waves[job.name].rows = message.results
            self._saved.peak = max(self._saved.peak, message.used_bytes)
            self._save_results()
        elif isinstance(message, UntrainedEvaluated):  # measured again unless they are in the next checkpoint
            self._add_rows(message.rows)
            self._add_trajectories(message.trajectories, message.results)
            self._saved.results += message.results
            self._save_results()
        # a wave's state, its end, and ends on the way
        elif isinstance(message, JobCheckpoint):
            self._save_job(job, message)
        elif isinstance(message, Trained):
            self._finish(job, message)
        elif isinstance(message, RungReached):
            self._park(job, message)
        elif isinstance(message, TrainingStopped):
            at = f"in wave {self._num_done + 1} of {self._num_waves} " if self._num_waves > 1 else ""
            self._stopped_at = f"{at}after iteration {message.iteration:,} of {self._cfg.learning_iterations:,}"
        return isinstance(message, (Trained, RungReached, TrainingStopped))

    def bisected(self, job: Job) -> None:
        self._discard(job)
        self._waves.update({half.name: _Wave(0) for half in job.bisect()})
        self._report()

    def failed(self, job: Job, reason: str) -> None:
        self._discard(job)
        self._num_done += 1
        fault = Fault(f"its training crashed two workers: {reason}", kind="crashed")
        for name, seed in job.items:
            log.warning("candidate %s (seed %s) failed: %s", name, seed, fault)
        self._finish_wave([Result(name, seed, FAILED, fault=fault) for name, seed in job.items], {})
        self._report()

    def _update_progress(self, job: Job, message: Progress) -> None:
        job.iteration = max(job.iteration, message.iteration)
        wave = self._waves[job.name]
        if wave.env_steps:  # the first report may include steps from before this process began
            self._env_steps += max(0, message.env_steps - wave.env_steps)
        wave.iteration, wave.env_steps = message.iteration, message.env_steps
        self._reported[job.name] = message.best
        self._report()

    def _save_job(self, job: Job, message: JobCheckpoint) -> None:
        """Write a job's checkpoint, after the rows, so that a resumed run has all of them."""
        self._logs.append(message.rows)
        previous = self._checkpoint(job)
        rows = sum_counts({} if previous is None else previous.rows, message.rows.counts)
        self._folder.jobs.mkdir(exist_ok=True)
        file = self._folder.job(job.name)
        self._folder.write(file, message.content)
        others = [saved for saved in self._saved.jobs if saved is not previous]
        self._saved.jobs = [*others, SavedJob(list(job.items), message.iteration, rows, file)]
        job.saved(message.iteration)
        self._save()

    def _finish(self, job: Job, message: Trained) -> None:
        """Save the results and policies of a wave that has trained to the end."""
        if message.state is not None:
            self._folder.write_state(job.items, message.state)
        self._add_trajectories(message.trajectories, message.results)
        self._end_job(job, message)
        self._finish_wave(message.results, message.policies, checkpoint=self._checkpoint(job))
        note(f"wave {self._num_done} of {self._num_waves} done: {len(job.items)} groups")
        self._report()

    def _park(self, job: Job, message: RungReached) -> None:
        """Save a wave whose groups wait at a rung."""
        self._end_job(job, message)
        failed = [row for row in message.results if row.failed]
        waiting = [row for row in message.results if not row.failed]
        self._parked.add(self._end, waiting, message.content, message.policies)
        self._finish_wave(failed, {}, checkpoint=self._checkpoint(job))
        self._report()

    def _end_job(self, job: Job, message: Trained | RungReached) -> None:
        checkpoint = self._checkpoint(job)
        counted = {} if checkpoint is None else checkpoint.rows
        self._add_rows(message.rows, counted)
        del self._waves[job.name]
        self._num_done += 1

    def _finish_wave(
        self, rows: Sequence[Result], policies: Mapping[GroupKey, bytes], checkpoint: SavedJob | None = None
    ) -> None:
        """Save the results and policies of groups that are done; ``checkpoint`` is no longer needed."""
        saved = self._saved
        saved.results += rows
        saved.waves += 1
        results.write_policies(self._folder, self._cfg, policies.items(), saved.results)
        if checkpoint is not None:
            saved.jobs.remove(checkpoint)
        self._save()  # now the wave is not trained again
        if checkpoint is not None:
            checkpoint.file.unlink(missing_ok=True)

    def _discard(self, job: Job) -> None:
        """Delete the checkpoint and the logged rows of a job."""
        self._logs.close()
        checkpoint = self._checkpoint(job)
        if checkpoint is not None:
            self._saved.jobs.remove(checkpoint)
            checkpoint.file.unlink(missing_ok=True)
        self._logs = self._open_logs()
        del self._waves[job.name]

    def _checkpoint(self, job: Job) -> SavedJob | None:
        """Return the checkpoint of a job that was in training; it has the same groups in the same order."""
        matching = (saved for saved in self._saved.jobs if saved.groups == list(job.items) and not saved.parked)
        return next(matching, None)

    # the run's files

    def _add_rows(self, rows: Any, counted: Mapping[str, int] | None = None) -> None:
        self._logs.append(rows)
        self._saved.rows = sum_counts(self._saved.rows, counted or {}, rows.counts)

    def _add_trajectories(self, recorded: Mapping[str, Trajectories], rows: Sequence[Result]) -> None:
        """Write the trajectories of policies that have a fitness."""
        measured = {row.candidate for row in rows if row.measured}
        lint.add(self._folder, {name: trajectories for name, trajectories in recorded.items() if name in measured})

    def _open_logs(self) -> RunLogs:
        """Open the run's log files, without rows that were logged after the checkpoint."""
        folder, saved = self._folder, self._saved
        trackers = [] if self._wandb is None else [self._wandb]  # besides TensorBoard; they outlive the log files
        if not saved.begun:
            return RunLogs.begin(folder.path, trackers)
        try:
            logs = RunLogs.resume(folder.path, saved.iterations(), saved.done, saved.all_rows, trackers)
        except ValueError as error:
            raise UserError(f"{error}; restore a copy of it, or delete it to continue without those rows") from error
        in_training = sum_counts(*(job.rows for job in saved.jobs))
        saved.rows = {name: count - in_training.get(name, 0) for name, count in logs.rows.items()}
        for name, rows in logs.lost.items():
            log.warning("%s: %s rows from before are lost; the run continues", folder.path / name, rows)
        return logs

    def _note_software(self) -> None:
        """Record the software of a resumed run, once, and warn if it differs from before."""
        if self._resumed:
            self._resumed = False
            different = self._folder.note_software(self._cfg.device, self._head.device_names)
            if different:
                log.warning("%s: %s", self._folder.path, different)

    def _save(self) -> None:
        """Write results.csv and the checkpoint."""
        self._saved.seconds = self._seconds_before + time.monotonic() - self._began
        self._save_results()
        self._folder.write_checkpoint(self._saved)

    def _save_results(self) -> None:
        results.save_results(self._folder, self._spec.sources, [*self._saved.results, *self._running])
