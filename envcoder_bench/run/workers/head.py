"""The head of a run: it assigns jobs to workers and passes on their messages."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import flush_messages, note, show_print
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.run.prepare.plan import MemoryPlanner
from envcoder_bench.run.train.session import Shared
from envcoder_bench.run.workers.jobs import CrashOutcome, Job, JobQueue
from envcoder_bench.run.workers.messages import (
    OutOfMemory,
    Printed,
    Ready,
    Request,
    UserMessage,
    WorkerError,
    WorkerLost,
)

log = logging.getLogger(__name__)

_SAME_SOFTWARE = ("python", "torch", "mujoco", "mujoco_warp", "warp", "rl_games", "numpy")  # keys of run.json
_logged: set[str] = set()  # messages below WARNING from the workers of all runs in this process


class Pool(ABC):
    """Numbered workers. A lost worker is replaced by one with a new number, if possible.

    Attributes:
        is_local: whether there is one worker, in the process of the run.
        deliver: set by the head; it handles a message of a worker, which ``submit`` may call.
        shared: set by the head while jobs run; None while candidates are checked.
    """

    is_local = False
    deliver: Callable[[int, Any], None]
    shared: Shared | None = None

    @property
    @abstractmethod
    def num_starting(self) -> int:
        """Number of workers that have not started yet and are worth waiting for."""

    @abstractmethod
    def submit(self, worker: int, request: Request) -> None:
        """Send a job to an idle worker."""

    @abstractmethod
    def poll(self) -> list[tuple[int, Any]]:
        """Wait briefly for messages; return each with the number of its worker.

        Raises NoWorker if none can be started.
        """

    @abstractmethod
    def stop(self, by: int | str) -> None:
        """Request all workers to stop training after the current iteration."""

    @abstractmethod
    def restart(self, worker: int) -> None:
        """Kill a worker and start another one in its place."""

    @abstractmethod
    def close(self) -> None:
        """Kill all workers."""


class JobHandler(ABC):
    """Creates the requests for jobs of one type and processes the results."""

    item: str

    @abstractmethod
    def request(self, job: Job) -> Request:
        """Return the message that starts the job on a worker."""

    @abstractmethod
    def handle(self, job: Job, message: Any) -> bool:
        """Process a message of the job's worker; return whether the job is over."""

    @abstractmethod
    def bisected(self, job: Job) -> None:
        """Discard the state of a job that is replaced by its halves."""

    @abstractmethod
    def failed(self, job: Job, reason: str) -> None:
        """Record the failure of a job with one item."""


class Head:
    """Runs jobs on the workers of a pool.

    Args:
        code: the ``code_digest`` that all workers must have.

    Attributes:
        workers: the ``Ready`` message of each started worker, by its number.
    """

    def __init__(self, pool: Pool, code: str) -> None:
        self.workers: dict[int, Ready] = {}
        self._pool, self._code = pool, code
        self._idle: list[int] = []
        self._warned: set[str] = set()
        self._queue = JobQueue()
        self._handler: JobHandler | None = None
        pool.deliver = self._receive

    @property
    def is_local(self) -> bool:
        """Whether there is one worker, in this process."""
        return self._pool.is_local

    @property
    def devices(self) -> list[str]:
        """The names of the workers' devices, with duplicates."""
        return [str(worker.software["device"]) for worker in self.workers.values()]

    @property
    def device_names(self) -> str | None:
        """The names of the workers' devices, for run.json; None for the device of this process."""
        return None if self.is_local else ", ".join(sorted(set(self.devices)))

    @property
    def planner(self) -> MemoryPlanner:
        """The planner of the worker with the least memory."""
        return min((worker.planner for worker in self.workers.values()), key=lambda planner: planner.available)

    def wait_for_workers(self) -> None:
        """Wait until the workers have started. Raises UserError if their software differs."""
        most = self._pool.num_starting
        while self._pool.num_starting or not self.workers:
            self._poll()
        if len(self.workers) < most:
            log.warning("%s of %s devices have started: the run is planned for these", len(self.workers), most)

    def run(
        self, jobs: list[Job], handler: JobHandler, stop: StopRequest | None = None, shared: Shared | None = None
    ) -> bool:
        """Run jobs until all are over, or until those in training have stopped after ``stop`` was requested.

        Returns:
            Whether all were begun.
        """
        queue, is_stopping = JobQueue(jobs), False
        self._queue, self._handler, self._pool.shared = queue, handler, shared
        try:
            while queue.running or queue.waiting:
                if stop is not None and stop.by is not None:
                    if not is_stopping:
                        is_stopping = True
                        self._pool.stop(stop.by)
                    queue.waiting.clear()  # also jobs of workers lost meanwhile: they are resumed with the run
                elif self._idle and queue.waiting:
                    worker = self._idle.pop(0)
                    self._pool.submit(worker, handler.request(queue.take(worker)))
                    continue
                if queue.running or queue.waiting:
                    self._poll()
        finally:
            self._queue, self._handler, self._pool.shared = JobQueue(), None, None
        return not is_stopping

    def _poll(self) -> None:
        for worker, message in self._pool.poll():
            self._receive(worker, message)

    def _receive(self, worker: int, message: Any) -> None:
        # workers that come and go, and what they say
        if isinstance(message, Ready):
            self._add(worker, message)
        elif isinstance(message, UserMessage):
            self._log(message)
        elif isinstance(message, Printed):
            (show_print if message.on_screen else note)(message.text)
        elif isinstance(message, WorkerError):
            if message.is_user_error:
                raise UserError(message.message)
            raise RuntimeError(f"error in a worker:\n{message.message}")
        elif isinstance(message, WorkerLost):
            self._remove(worker)
            self._handle_loss(worker, message)
        elif isinstance(message, OutOfMemory):
            self._remove(worker)
            self._pool.restart(worker)
            self._handle_loss(worker, WorkerLost(f"out of memory ({message.reason})"))
        else:
            job = self._queue.running.get(worker)  # None for late messages of a lost worker
            handler = self._handler
            if handler is None or job is None or job.name != message.job:
                return
            if handler.handle(job, message):
                self._queue.finish(worker)
                self._idle.append(worker)

    def _add(self, worker: int, ready: Ready) -> None:
        if ready.code != self._code:
            raise UserError(
                f"envcoder_bench on {ready.node} differs from the one on this machine: install the same on all nodes"
            )
        for other in self.workers.values():
            pairs = [(name, ready.software.get(name), other.software.get(name)) for name in _SAME_SOFTWARE]
            different = [f"{name} {a} on {ready.node} and {b} on {other.node}" for name, a, b in pairs if a != b]
            if different:
                raise UserError(f"the nodes differ: {'; '.join(different)}; install the same versions on all nodes")
        self.workers[worker] = ready
        self._idle.append(worker)

    def _remove(self, worker: int) -> None:
        self.workers.pop(worker, None)
        if worker in self._idle:
            self._idle.remove(worker)

    def _handle_loss(self, worker: int, loss: WorkerLost) -> None:
        queue, handler = self._queue, self._handler
        if loss.is_crash:
            job, outcome = queue.crash(worker) or (None, None)
        else:
            job, outcome = queue.retry(worker), CrashOutcome.RETRIED
        if job is None or handler is None:
            return
        what = f"{len(job.items)} {handler.item}{'s' * (len(job.items) > 1)}"
        if outcome is CrashOutcome.RETRIED:
            at = f" at iteration {job.iteration}" if job.iteration else ""
            log.warning("lost a worker%s (%s): its job of %s is retried on another worker", at, loss.reason, what)
        elif outcome is CrashOutcome.BISECTED:
            log.warning("lost another worker (%s): its job of %s is bisected and restarted", loss.reason, what)
            handler.bisected(job)
        else:
            handler.failed(job, loss.reason)
        flush_messages()  # the next message may take minutes

    def _log(self, message: UserMessage) -> None:
        """Log a message unless it is a repetition: a warning once per run, others once per process."""
        logged = self._warned if message.level >= logging.WARNING else _logged
        if message.text not in logged:
            logged.add(message.text)
            log.log(message.level, "%s", message.text)
