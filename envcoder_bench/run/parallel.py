"""A run on several devices: workers check the candidates and train the waves, the head keeps the run's folder."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any, Iterator, Sequence

from omegaconf import DictConfig

from envcoder_bench.core.cpus import usable_cpus
from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.run_log import note
from envcoder_bench.report.results import FAILED, Result
from envcoder_bench.run import results
from envcoder_bench.run.checkpoint import GroupKey, SavedJob, pack_job, save_checkpoint
from envcoder_bench.run.devices import Devices, asked_devices
from envcoder_bench.run.folder import CandidateSource
from envcoder_bench.run.head import Head, Work
from envcoder_bench.run.jobs import Job
from envcoder_bench.run.plan import GroupFacts, MemoryPlanner, split
from envcoder_bench.run.prepare import Faults
from envcoder_bench.run.training import Training
from envcoder_bench.run.worker import (
    Check,
    Checked,
    Evaluated,
    Finished,
    Progress,
    Saved,
    Setup,
    Stopped,
    Train,
    code_digest,
)
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.trainers.base import Widths

log = logging.getLogger(__name__)


@contextlib.contextmanager
def workers(cfg: DictConfig, devices: Devices, fitness: CandidateSource | None, groups: int) -> Iterator[Head]:
    """The head of a run with its workers, which end with the block; no more than ``groups`` of them are of use.

    Raises:
        UserError: the devices or Ray are not there, or the software of two machines differs.
    """
    from envcoder_bench.run.ray_pool import RayPool, started  # here: a run in this process does without Ray

    def setup(index: int, sharers: int) -> Setup:
        own = cores(index, sharers) if devices.kind == "cpu" and devices.address is None else None
        return Setup(cfg, fitness, sharers, own)

    with started(devices):
        pool = RayPool(devices, groups, setup)
        try:
            head = Head(pool, code_digest(cfg))
            head.gather()
            log.info("workers: %s", _counted([f"{own.software['device']}" for own in head.ready.values()]))
            yield head
        finally:
            pool.close()


@contextlib.contextmanager
def kept(cfg: DictConfig) -> Iterator[None]:
    """Start Ray once for all runs of the block, if they are to train on several devices."""
    devices = asked_devices(cfg)
    if devices is None:
        yield
        return
    from envcoder_bench.run.ray_pool import started

    with started(devices):
        yield


def cores(index: int, workers: int) -> tuple[int, ...] | None:
    """The cores of this machine for one of its workers; None: all, as there are more workers than cores."""
    count = usable_cpus()
    if workers > count or not hasattr(os, "sched_getaffinity"):
        return None
    return tuple(split(sorted(os.sched_getaffinity(0)), workers)[index])


def machines(head: Head) -> str:
    """The names of the workers' devices, each once."""
    return ", ".join(sorted({str(own.software["device"]) for own in head.ready.values()}))


def _counted(names: Sequence[str]) -> str:
    """Names, each once and with its number."""
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def smallest_planner(head: Head) -> MemoryPlanner:
    """The planner of the worker with the least memory."""
    return min((own.planner for own in head.ready.values()), key=lambda planner: planner.available)


# checking


@dataclass
class _Checking(Work):
    baselines: Sequence[CandidateSource]
    sources: dict[str, CandidateSource]
    widths: dict[str, Widths] = field(default_factory=dict)
    faults: Faults = field(default_factory=dict)

    def order(self, job: Job) -> Check:
        return Check(job.name, [*self.baselines, *(self.sources[name] for name in job.items)])

    def hear(self, job: Job, message: Any) -> bool:
        if not isinstance(message, Checked):
            return False
        self.widths.update(message.widths)
        self.faults.update(message.faults)
        return True

    def dropped(self, job: Job, failed: str | None) -> None:
        if failed is not None:
            for name in job.items:
                text = f"the process that checked it ended, twice: {failed}"
                self.faults[name] = CandidateError(text, self.sources[name].file)


def check(head: Head, cfg: DictConfig, sources: Sequence[CandidateSource]) -> tuple[list[GroupFacts], Faults]:
    """``prepare`` on the workers: the groups that can be trained, in their order, and the faults of the others."""
    baselines = [source for source in sources if source.name in BASELINES]
    own = {source.name: source for source in sources if source.name not in BASELINES}
    parts = split(list(own), max(1, min(len(own), len(head.ready))))
    work = _Checking(baselines, own)
    head.see_through([Job(tuple(part), len(part)) for part in parts], work)
    order = [source.name for source in sources]
    groups = [GroupFacts(x, seed, work.widths[x]) for x in order if x in work.widths for seed in results.seeds(cfg)]
    return groups, {name: work.faults[name] for name in order if name in work.faults}


# training


@dataclass
class ParallelTraining(Training, Work):
    """What is left of a run, as Training, whose waves train on several devices at a time."""

    head: Head = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.profile = None
        self._running: dict[str, Sequence[Result]] = {}  # rows of waves in training, by job
        self._reached: dict[str, tuple[int, int]] = {}  # iteration and env_steps of each job
        self._steps = 0  # env_steps of all jobs, since this process is at work
        self._iterations = 0  # of waves that are done
        self._best: tuple[str, float] | None = None
        self._total = 0
        self._keys: dict[str, Sequence[GroupKey]] = {}

    def _train(self, waves: list[list[GroupFacts]]) -> str | None:
        """Train all waves; returns where they were stopped, or None at their end."""
        saved, each = self.saved, self.cfg.learning_iterations
        self._logs = self._open_logs()
        self._note_software()
        self._keep_training()
        self._seconds, self._began = saved.seconds, time.monotonic()
        self._total = saved.waves + len(waves)
        begun = {job.file: job.iteration for job in saved.jobs}
        jobs = [Job(tuple((group.name, group.seed) for group in wave), 0.0) for wave in waves]
        for job in jobs:
            job.reached = begun.get(self.folder.job(job.name), 0)
            job.work = float(len(job.items) * (each - job.reached))
        best = max((r for r in saved.results if r.measured), key=lambda r: r.fitness, default=None)
        self._best = None if best is None else (best.candidate, best.fitness)
        self._iterations = each * saved.waves
        self._reached = {job.name: (job.reached, 0) for job in jobs}
        self.reporter.devices_began(len(self.head.ready), self._total, self._done, each * self._total)
        try:
            whole = self.head.see_through(jobs, self, self.stop)
        finally:
            self._logs.close()
            self._save()
            self.reporter.wave_ended()
        return None if whole else f"after {saved.waves} of {self._total} waves"

    @property
    def _done(self) -> int:
        """Iterations of all waves."""
        return self._iterations + sum(iteration for iteration, _ in self._reached.values())

    def _machines(self) -> str | None:
        return machines(self.head)

    def _keep_training(self) -> None:
        """Move the wave that a run in one process had in training to a file of its own."""
        saved = self.saved
        if saved.training is None:
            return
        saved.rows = {}  # how many of them are this wave's is not known
        job = self._saved_job(saved.groups, saved.training["iteration"], {})
        write_atomic(job.file, pack_job(saved.groups, saved.training, {}))
        saved.jobs.append(job)
        saved.groups, saved.training = [], None
        save_checkpoint(self.folder.checkpoint, saved)

    def _saved_job(self, groups: Sequence[GroupKey], iteration: int, rows: dict[str, int]) -> SavedJob:
        self.folder.jobs.mkdir(exist_ok=True)
        return SavedJob(list(groups), iteration, rows, self.folder.job(Job(tuple(groups), 0.0).name))

    # Work

    def order(self, job: Job) -> Train:
        own = {name for name, _ in job.items}
        sources = [source for source in self.sources if source.name in own or source.name in BASELINES]
        kept = self._kept(job)
        if kept is None:
            return Train(job.name, sources, job.items, best=self._best)
        return Train(job.name, sources, job.items, kept.file.read_bytes(), str(kept.file), self._best)

    def hear(self, job: Job, message: Any) -> bool:
        if isinstance(message, Progress):
            self._progress(job, message)
        elif isinstance(message, Evaluated):
            self.saved.peak = max(self.saved.peak, message.peak)
            self._running[job.name] = message.results
            self._save_results()
        elif isinstance(message, Saved):
            self._keep(job, message)
        elif isinstance(message, Finished):
            self._finish(job, message)
            return True
        return isinstance(message, Stopped)

    def dropped(self, job: Job, failed: str | None) -> None:
        """Forget what a wave came to; where it failed, write its rows."""
        saved = self.saved
        kept = self._kept(job)
        self._logs.close()
        if kept is not None:
            saved.jobs.remove(kept)
            kept.file.unlink(missing_ok=True)
        self._logs = self._open_logs()  # without the rows of its groups
        self._running.pop(job.name, None)
        self._reached.pop(job.name, None)
        if failed is None:
            for half in job.halves():
                self._reached[half.name] = (0, 0)
            self._total += 1
        else:
            self._iterations += self.cfg.learning_iterations
            saved.waves += 1
            for name, seed in job.items:
                error = f"the process that trained it ended, twice: {failed}"
                log.warning("candidate %s (seed %s) failed: %s", name, seed, error)
                saved.results.append(Result(name, seed, FAILED, error=error))
            self._save()
        self._tell()

    # what comes of a wave

    def _progress(self, job: Job, message: Progress) -> None:
        job.reached = max(job.reached, message.iteration)
        _, before = self._reached.get(job.name, (0, 0))
        self._steps += max(0, message.env_steps - before) if before else 0
        self._reached[job.name] = (message.iteration, message.env_steps)
        if message.best is not None and (self._best is None or message.best[1] > self._best[1]):
            self._best = message.best
        self._tell()

    def _tell(self) -> None:
        self.reporter.devices_at_work(len(self.head.ready), self.saved.waves, self._total)
        self.reporter.iteration_done(self._done, self._steps, self._best)

    def _keep(self, job: Job, message: Saved) -> None:
        """Write a checkpoint: the rows first, so that none is missing where it goes on."""
        self._logs.append(message.rows)
        kept = self._kept(job)
        rows = dict(kept.rows) if kept is not None else {}
        for name, count in message.rows.counts.items():
            rows[name] = rows.get(name, 0) + count
        now = self._saved_job(job.items, message.iteration, rows)
        write_atomic(now.file, message.state)
        if kept is not None:
            self.saved.jobs.remove(kept)
        self.saved.jobs.append(now)
        job.saved(message.iteration)

    def _finish(self, job: Job, message: Finished) -> None:
        saved, kept = self.saved, self._kept(job)
        self._logs.append(message.rows)
        for counts in ([kept.rows] if kept is not None else []) + [message.rows.counts]:
            for name, count in counts.items():
                saved.rows[name] = saved.rows.get(name, 0) + count
        saved.results += message.results
        saved.waves += 1
        saved.peak = max(saved.peak, message.peak)
        self._running.pop(job.name, None)
        self._reached.pop(job.name, None)
        self._iterations += self.cfg.learning_iterations
        exports = {key: (lambda own=policy: own) for key, policy in message.policies.items()}
        results.write_policies(self.folder, self.cfg, exports, saved.results)
        if kept is not None:
            saved.jobs.remove(kept)
        self._save()  # from here on the wave is not trained again
        if kept is not None:
            kept.file.unlink(missing_ok=True)
        note(f"wave {saved.waves} of {self._total} done: {len(job.items)} groups")
        self._tell()

    def _kept(self, job: Job) -> SavedJob | None:
        groups = list(job.items)
        return next((own for own in self.saved.jobs if own.groups == groups), None)

    def _save_results(self) -> None:
        running = [row for rows in self._running.values() for row in rows]
        results.save_results(self.folder, self.sources, self.saved.results + running)

    def _save(self) -> None:
        """Write what is done, and with it the time so far."""
        self.saved.seconds = self._seconds + time.monotonic() - self._began
        self.saved.results.sort(key=lambda row: row.seed)
        self._save_results()
        save_checkpoint(self.folder.checkpoint, self.saved)
