"""The queue of jobs of a run on several devices, with retries and bisection of jobs that crash workers."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from envcoder_bench.core.files import digest

MAX_CRASHES = 2  # a job that crashes so often at one place is bisected


class CrashOutcome(enum.Enum):
    """What the queue does with a job that crashed its worker."""

    RETRIED = enum.auto()
    BISECTED = enum.auto()
    FAILED = enum.auto()


@dataclass
class Job:
    """A unit of work for one worker.

    Attributes:
        items: groups to train, or names of candidates to check, in the order of the run.
        cost: estimated cost, in any unit; expensive jobs are started first.
        iteration: last reported iteration.
        crashes: number of crashes; a checkpoint beyond their iteration resets it.
    """

    items: tuple[Any, ...]
    cost: float
    iteration: int = 0
    crashes: int = 0
    _crashed_at: int = field(default=-1, repr=False)

    @property
    def name(self) -> str:
        """A digest of the items, equal in every process that resumes the run."""
        return digest(repr(self.items))[:16]

    def saved(self, iteration: int) -> None:
        """Record a checkpoint. A crash after it has another cause than those at earlier iterations."""
        self.iteration = max(self.iteration, iteration)
        if iteration > self._crashed_at:
            self.crashes, self._crashed_at = 0, -1

    def crashed(self) -> None:
        """Record a crash."""
        self.crashes += 1
        self._crashed_at = self.iteration

    def bisect(self) -> list[Job]:
        """Return two jobs with half of the items each, from iteration 0."""
        middle = (len(self.items) + 1) // 2
        cost = self.cost / len(self.items)
        return [Job(part, cost * len(part)) for part in (self.items[:middle], self.items[middle:])]


class JobQueue:
    """Waiting and running jobs.

    A job whose worker crashed is retried by another worker. Jobs that crash workers repeatedly are bisected until the
    failing item is isolated.
    """

    def __init__(self, jobs: Sequence[Job] = ()) -> None:
        self.waiting: list[Job] = list(jobs)
        self.running: dict[Hashable, Job] = {}

    def take(self, worker: Hashable) -> Job:
        """Assign the most expensive waiting job to a worker; of several, the first."""
        job = max(self.waiting, key=lambda job: job.cost)
        self.waiting.remove(job)
        self.running[worker] = job
        return job

    def finish(self, worker: Hashable) -> None:
        """Remove a worker's job, which is complete."""
        del self.running[worker]

    def retry(self, worker: Hashable) -> Job | None:
        """Return the job of a lost worker to the queue, if it had one, without counting a crash."""
        job = self.running.pop(worker, None)
        if job is not None:
            self.waiting.append(job)
        return job

    def crash(self, worker: Hashable) -> tuple[Job, CrashOutcome] | None:
        """Retry, bisect or fail the job of a worker that crashed; None if it had no job."""
        job = self.running.pop(worker, None)
        if job is None:
            return None
        job.crashed()
        if job.crashes < MAX_CRASHES:
            self.waiting.append(job)
            return job, CrashOutcome.RETRIED
        if len(job.items) > 1:
            self.waiting += job.bisect()
            return job, CrashOutcome.BISECTED
        return job, CrashOutcome.FAILED
