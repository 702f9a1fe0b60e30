"""The jobs of a run on several devices: which is next, and what becomes of one whose worker has died."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Hashable, Sequence

AGAIN, HALVED, FAILED = "again", "halved", "failed"
MOST_DEATHS = 2  # of workers with one job: then it is taken apart


@dataclass
class Job:
    """What one worker does at a time.

    Attributes:
        items: what the job is about, in the order of the run: groups to train, or candidates to check.
        work: how much there is to do, to begin with the longest.
        deaths: how many workers died of it without getting beyond the place where the one before died.
        reached: the last iteration that was heard of.
    """

    items: tuple[Any, ...]
    work: float
    deaths: int = 0
    reached: int = 0
    _died_at: int = field(default=-1, repr=False)

    @property
    def name(self) -> str:
        """The same in every process that goes on with the run."""
        return hashlib.sha256(repr(self.items).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def saved(self, iteration: int) -> None:
        """A checkpoint of this iteration is kept: a worker that dies from here on dies of something else."""
        self.reached = max(self.reached, iteration)
        if iteration > self._died_at:
            self.deaths, self._died_at = 0, -1

    def died(self) -> None:
        self.deaths += 1
        self._died_at = max(self._died_at, self.reached)

    def halves(self) -> list[Job]:
        """Two jobs of its items, which begin anew."""
        middle = (len(self.items) + 1) // 2
        share = self.work / len(self.items)
        return [Job(part, share * len(part)) for part in (self.items[:middle], self.items[middle:])]


class JobQueue:
    """Jobs that wait, and those at work by the worker that has them.

    A job whose worker died is done again by another worker. After ``MOST_DEATHS`` it is cut into halves, so that what
    kills workers is found: a job of one item that kills fails.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.waiting: list[Job] = list(jobs)
        self.running: dict[Hashable, Job] = {}

    @property
    def left(self) -> list[Job]:
        """All jobs that are not done."""
        return [*self.running.values(), *self.waiting]

    def take(self, worker: Hashable) -> Job | None:
        """Give a worker the job with the most work; of several, the first. None: nothing waits."""
        if not self.waiting:
            return None
        job = max(self.waiting, key=lambda job: job.work)  # the first of equals
        self.waiting.remove(job)
        self.running[worker] = job
        return job

    def done(self, worker: Hashable) -> Job:
        """A worker's job is over."""
        return self.running.pop(worker)

    def give_back(self, worker: Hashable) -> Job | None:
        """A worker is lost, and its job is not the reason; returns the job, which waits again."""
        job = self.running.pop(worker, None)
        if job is not None:
            self.waiting.append(job)
        return job

    def died(self, worker: Hashable) -> tuple[str, Job | None]:
        """A worker died with its job.

        Returns:
            The job, None if it had none, and what becomes of it: AGAIN, it waits; HALVED, its halves wait; FAILED.
        """
        job = self.running.pop(worker, None)
        if job is None:
            return AGAIN, None
        job.died()
        if job.deaths < MOST_DEATHS:
            self.waiting.append(job)
            return AGAIN, job
        if len(job.items) > 1:
            self.waiting += job.halves()
            return HALVED, job
        return FAILED, job
