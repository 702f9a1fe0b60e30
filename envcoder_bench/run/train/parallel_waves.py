"""Training of the waves of a run on several devices at a time."""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.run_log import note
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.report.results import FAILED, Result
from envcoder_bench.run.folder.checkpoint import GroupKey, SavedJob, pack_job, save_checkpoint
from envcoder_bench.run.prepare.plan import GroupFacts
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.train.training import Training
from envcoder_bench.run.train.untrained import due_in
from envcoder_bench.run.workers.head import Head, JobHandler
from envcoder_bench.run.workers.jobs import Job
from envcoder_bench.run.workers.messages import (
    Evaluated,
    JobCheckpoint,
    Progress,
    Train,
    Trained,
    TrainingStopped,
    UntrainedEvaluated,
)
from envcoder_bench.tasks.base import BASELINES

log = logging.getLogger(__name__)


@dataclass
class _Wave:
    """The state of a wave that is waiting or in training, as last reported."""

    iteration: int
    env_steps: int = 0
    rows: Sequence[Result] = ()


class ParallelWaves(JobHandler):
    """Trains waves on the workers of ``head``, and writes what they send to the run folder."""

    item = "group"

    def __init__(self, training: Training, head: Head, end: int | None = None) -> None:
        self._training, self._head = training, head
        self._end: int = training.cfg.learning_iterations if end is None else end
        self._folder, self._cfg, self._saved = training.folder, training.cfg, training.saved
        self._waves: dict[str, _Wave] = {}  # by job
        self._best = training.best
        self._env_steps = 0  # of all jobs since this process began
        self._seconds_before, self._began = training.saved.seconds, time.monotonic()

    def train(self, waves: list[list[GroupFacts]]) -> str | None:
        """Train all waves; return the place where training was stopped, or None at the end."""
        self._logs: RunLogs = self._training.open_logs()
        self._training.note_software()
        self._convert_checkpoint()
        jobs = [Job(tuple((group.name, group.seed) for group in wave), 0.0) for wave in waves]
        for job in jobs:
            job.iteration = self._start(job)
            job.cost = float(len(job.items) * (self._end - job.iteration))
            self._waves[job.name] = _Wave(job.iteration)
        total, reporter = self._num_waves, self._training.reporter
        iterations = self._end * total
        reporter.devices_began(len(self._head.workers), total, self._iterations, iterations)
        try:
            complete = self._head.run(jobs, self, self._training.stop)
        finally:
            self._logs.close()
            self._training.save(self._seconds, self._running)
            reporter.wave_ended()
        return None if complete else f"after {self._num_done} of {self._num_waves} waves"

    def _start(self, job: Job) -> int:
        """Return the iteration at which a job starts."""
        checkpoint = self._checkpoint(job)
        return 0 if checkpoint is None else checkpoint.iteration

    # totals of all waves

    @property
    def _num_waves(self) -> int:
        return self._num_done + len(self._waves)

    @property
    def _num_done(self) -> int:
        return self._saved.waves

    @property
    def _iterations(self) -> int:
        unfinished = sum(wave.iteration for wave in self._waves.values())
        return self._num_done * self._end + unfinished

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._began

    @property
    def _running(self) -> list[Result]:
        return [row for wave in self._waves.values() for row in wave.rows]

    def _report(self) -> None:
        reporter = self._training.reporter
        reporter.devices_at_work(len(self._head.workers), self._num_done, self._num_waves)
        reporter.iteration_done(self._iterations, self._env_steps, self._best)

    # jobs

    def request(self, job: Job) -> Train:
        names = {name for name, _ in job.items} | set(BASELINES)
        sources = [source for source in self._training.sources if source.name in names]
        until = None if self._end == self._cfg.learning_iterations else self._end
        untrained = due_in(job.items, self._saved.done)
        seeds = seed_count(self._cfg)
        request = Train(job.name, sources, job.items, untrained, best=self._best, until=until, seeds=seeds)
        checkpoint = self._checkpoint(job)
        if checkpoint is None:
            return request
        return self._with_checkpoint(request, checkpoint.file.read_bytes(), str(checkpoint.file))

    @staticmethod
    def _with_checkpoint(request: Train, content: bytes, file: str) -> Train:
        return replace(request, checkpoint=content, checkpoint_file=file)

    def handle(self, job: Job, message: Any) -> bool:
        if isinstance(message, Progress):
            self._update_progress(job, message)
        elif isinstance(message, Evaluated):
            self._waves[job.name].rows = message.results
            self._training.evaluated(self._running, message.used_bytes)
        elif isinstance(message, UntrainedEvaluated):
            self._logs.append(message.rows)
            counts = sum_counts(self._saved.rows, message.rows.counts)
            self._training.add_untrained(message.results, counts, self._seconds, self._running)
        elif isinstance(message, JobCheckpoint):
            self._save_job(job, message)
        elif isinstance(message, Trained):
            self._finish(job, message)
        return isinstance(message, (Trained, TrainingStopped))

    def bisected(self, job: Job) -> None:
        self._discard(job)
        self._waves.update({half.name: _Wave(0) for half in job.bisect()})
        self._report()

    def failed(self, job: Job, reason: str) -> None:
        self._discard(job)
        error = f"its training crashed two workers: {reason}"
        for name, seed in job.items:
            log.warning("candidate %s (seed %s) failed: %s", name, seed, error)
        rows = [Result(name, seed, FAILED, error=error) for name, seed in job.items]
        self._training.finish_wave(rows, [], self._seconds, self._running)
        self._report()

    def _update_progress(self, job: Job, message: Progress) -> None:
        job.iteration = max(job.iteration, message.iteration)
        wave = self._waves[job.name]
        if wave.env_steps:  # the first report may include steps from before this process began
            self._env_steps += max(0, message.env_steps - wave.env_steps)
        wave.iteration, wave.env_steps = message.iteration, message.env_steps
        if message.best is not None and (self._best is None or message.best[1] > self._best[1]):
            self._best = message.best
        self._report()

    def _save_job(self, job: Job, message: JobCheckpoint) -> None:
        """Write a job's checkpoint, after the rows, so that a resumed run has all of them."""
        self._logs.append(message.rows)
        previous = self._checkpoint(job)
        rows = sum_counts({} if previous is None else previous.rows, message.rows.counts)
        self._write_job(job.items, message.iteration, rows, message.content)
        job.saved(message.iteration)

    def _write_job(self, groups: Sequence[GroupKey], iteration: int, rows: dict[str, int], content: bytes) -> None:
        self._folder.jobs.mkdir(exist_ok=True)
        file = self._folder.job(Job(tuple(groups), 0.0).name)
        write_atomic(file, content)
        others = [job for job in self._saved.jobs if job.groups != list(groups)]
        self._saved.jobs = [*others, SavedJob(list(groups), iteration, rows, file)]

    def _finish(self, job: Job, message: Trained) -> None:
        saved, checkpoint = self._saved, self._checkpoint(job)
        self._logs.append(message.rows)
        saved.rows = sum_counts(saved.rows, {} if checkpoint is None else checkpoint.rows, message.rows.counts)
        del self._waves[job.name]
        if checkpoint is not None:
            saved.jobs.remove(checkpoint)
        if message.state is not None:
            self._folder.write_state(job.items, message.state)
        self._training.finish_wave(message.results, message.policies.items(), self._seconds, self._running)
        if checkpoint is not None:
            checkpoint.file.unlink(missing_ok=True)
        note(f"wave {self._num_done} of {self._num_waves} done: {len(job.items)} groups")
        self._report()

    def _discard(self, job: Job) -> None:
        """Delete the checkpoint and the logged rows of a job."""
        self._logs.close()
        checkpoint = self._checkpoint(job)
        if checkpoint is not None:
            self._saved.jobs.remove(checkpoint)
            checkpoint.file.unlink(missing_ok=True)
        self._logs = self._training.open_logs()
        del self._waves[job.name]

    def _checkpoint(self, job: Job) -> SavedJob | None:
        return next((saved for saved in self._saved.jobs if saved.groups == list(job.items)), None)

    def _convert_checkpoint(self) -> None:
        """Convert the checkpoint of a run in one process: move its wave in training to a file of its own."""
        saved = self._saved
        if saved.training is None:
            return
        saved.rows = {}  # how many of them belong to this wave is unknown
        self._write_job(saved.groups, saved.training["iteration"], {}, pack_job(saved.groups, saved.training, {}))
        saved.groups, saved.training = [], None
        save_checkpoint(self._folder.checkpoint, saved)


def sum_counts(*counts: Mapping[str, int]) -> dict[str, int]:
    """Add counts by name."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
