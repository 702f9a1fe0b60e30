"""The loop of the head: jobs go to workers, messages come back, and what dies is done again."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.run.jobs import AGAIN, FAILED, HALVED, Job, JobQueue
from envcoder_bench.run.worker import Broken, Check, OutOfMemory, Ready, Said, Train

log = logging.getLogger(__name__)
_facts: set[str] = set()  # what workers of this process' runs have said that is no warning

_PACKAGES = ("python", "torch", "mujoco", "mujoco_warp", "warp", "rl_games", "numpy")  # that must agree, in run.json


@dataclass(frozen=True)
class Lost:
    """A worker is gone; ``blames_job``: its job may be why."""

    reason: str
    blames_job: bool = True


class Pool(ABC):
    """Workers by number. A worker that is lost is replaced by one of another number, if it can be."""

    @property
    @abstractmethod
    def starting(self) -> int:
        """How many workers are worth waiting for, because they have not started yet."""

    @abstractmethod
    def begin(self, worker: int, order: Check | Train) -> None:
        """Give a job to a worker that has none."""

    @abstractmethod
    def poll(self) -> list[tuple[int, Any]]:
        """Wait a moment for messages of workers, ``Lost`` among them. Raises UserError where there are no workers."""

    @abstractmethod
    def stop(self, by: int | str) -> None:
        """Ask all workers to stop after their iteration."""

    @abstractmethod
    def discard(self, worker: int) -> None:
        """End a worker, and start another in its place."""

    @abstractmethod
    def close(self) -> None:
        """End all workers."""


class Work(ABC):
    """What jobs are about."""

    @abstractmethod
    def order(self, job: Job) -> Check | Train:
        """The job as a worker gets it."""

    @abstractmethod
    def hear(self, job: Job, message: Any) -> bool:
        """Take in a message of the job's worker; returns whether the job is over."""

    @abstractmethod
    def dropped(self, job: Job, failed: str | None) -> None:
        """Forget how far a job is: it was cut into halves; or it has ``failed``, for this reason."""


class Head:
    """Gives jobs to the workers of a pool and hears what they say.

    Args:
        pool: the workers.
        code: the digest that the code of all workers must have, see ``worker.code_digest``.

    Attributes:
        ready: what every worker said of itself that is there now, by its number.
    """

    def __init__(self, pool: Pool, code: str) -> None:
        self.pool = pool
        self._code = code
        self.ready: dict[int, Ready] = {}
        self._idle: list[int] = []
        self._said: set[str] = set()

    def gather(self) -> None:
        """Wait for the workers. Raises UserError where their software differs."""
        queue = JobQueue([])
        while self.pool.starting or not self.ready:
            self._listen(queue, None)

    def see_through(self, jobs: list[Job], work: Work, stop: StopRequest | None = None) -> bool:
        """Have all jobs done; returns whether they are, or were stopped."""
        queue, stopping = JobQueue(jobs), False
        while queue.running or (queue.waiting and not stopping):
            if stop is not None and stop.by is not None and not stopping:
                stopping = True
                self.pool.stop(stop.by)
            while self._idle and queue.waiting and not stopping:
                worker = self._idle.pop(0)
                job = queue.take(worker)
                assert job is not None
                self.pool.begin(worker, work.order(job))
            if queue.running or not stopping:
                self._listen(queue, work)
            if stopping:  # what died meanwhile goes on from its checkpoint with --resume
                queue.waiting.clear()
        return not stopping

    def _listen(self, queue: JobQueue, work: Work | None) -> None:
        for worker, message in self.pool.poll():
            if isinstance(message, Ready):
                self._welcome(worker, message)
            elif isinstance(message, Said):
                self._say(message)
            elif isinstance(message, Broken):
                if message.mistake:
                    raise UserError(message.reason)
                raise RuntimeError(f"a worker failed:\n{message.reason}")
            elif isinstance(message, Lost):
                self._forget(worker)
                self._lost(queue, work, worker, message)
            elif isinstance(message, OutOfMemory):
                self._forget(worker)
                self.pool.discard(worker)
                self._lost(queue, work, worker, Lost(f"out of memory ({message.reason})"))
            else:
                job = queue.running.get(worker)
                if work is not None and job is not None and job.name == message.job and work.hear(job, message):
                    queue.done(worker)
                    self._idle.append(worker)

    def _welcome(self, worker: int, ready: Ready) -> None:
        if ready.code != self._code:
            raise UserError(
                f"the code of envcoder_bench on {ready.node} is not that of this machine: install the same on all nodes"
            )
        for other in self.ready.values():
            _refuse_other_software(ready, other)
        self.ready[worker] = ready
        self._idle.append(worker)

    def _forget(self, worker: int) -> None:
        self.ready.pop(worker, None)
        if worker in self._idle:
            self._idle.remove(worker)

    def _lost(self, queue: JobQueue, work: Work | None, worker: int, lost: Lost) -> None:
        if not lost.blames_job:
            if queue.give_back(worker) is not None:
                log.warning("a worker is gone, %s: its wave goes on elsewhere", lost.reason)
            return
        verdict, job = queue.died(worker)
        if job is None or work is None:
            return
        if verdict == AGAIN:
            where = f" at iteration {job.reached}" if job.reached else ""
            log.warning("a worker is gone%s, %s: its %s goes on elsewhere", where, lost.reason, _what(job))
        elif verdict == HALVED:
            log.warning("a second worker is gone, %s: its %s is halved, and begins anew", lost.reason, _what(job))
            work.dropped(job, None)
        elif verdict == FAILED:
            work.dropped(job, lost.reason)

    def _say(self, said: Said) -> None:
        """Say what a worker said, unless another one has said it before: what is no warning, once for all runs."""
        known = self._said if said.level >= logging.WARNING else _facts
        if said.text not in known:
            known.add(said.text)
            log.log(said.level, "%s", said.text)


def _what(job: Job) -> str:
    return f"wave of {len(job.items)} group{'s' * (len(job.items) > 1)}"


def _refuse_other_software(one: Ready, other: Ready) -> None:
    """Raise UserError where two workers would not compute the same."""
    pairs = [(name, one.software.get(name), other.software.get(name)) for name in _PACKAGES]
    different = [f"{name} {a} on {one.node} and {b} on {other.node}" for name, a, b in pairs if a != b]
    if different:
        raise UserError(f"the nodes differ: {'; '.join(different)}; install the same versions on all of them")
