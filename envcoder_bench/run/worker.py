"""One worker of a run on several devices: it checks candidates and trains waves, and tells the head what comes of it.

Nothing here knows how messages travel: ``ray_pool`` makes an actor of ``Worker``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import platform
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

import torch
from omegaconf import DictConfig

from envcoder_bench.compile.cache import package_code
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.messages import is_muted
from envcoder_bench.core.run_log import LOGGERS
from envcoder_bench.report.logs import Rows, RunLogs
from envcoder_bench.report.results import Result
from envcoder_bench.run import results
from envcoder_bench.run.checkpoint import GroupKey, load_job, pack_job
from envcoder_bench.run.folder import CandidateSource
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.plan import MemoryPlanner, release, used_bytes
from envcoder_bench.run.prepare import Faults, Group, prepare
from envcoder_bench.run.provenance import software
from envcoder_bench.run.session import Session, Wave, open_session
from envcoder_bench.tasks.registry import get_spec
from envcoder_bench.trainers.base import Widths

POLL_SECONDS = 0.5  # a message waits no longer than this for others


@dataclass(frozen=True)
class Setup:
    """What all jobs of a worker have in common.

    Attributes:
        cfg: of the run; its device is this worker's.
        fitness: the file whose ``compute_fitness`` evaluations measure, or None.
        sharers: so many workers share the memory of this machine.
        cores: which the worker may use; None: all.
    """

    cfg: DictConfig
    fitness: CandidateSource | None
    sharers: int = 1
    cores: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Check:
    """A job: load, check and trace these sources."""

    job: str
    sources: Sequence[CandidateSource]


@dataclass(frozen=True)
class Train:
    """A job: train these groups, on from ``state`` if there is one.

    Attributes:
        sources: of the groups, and the baselines.
        state: the content of a job's checkpoint, which is in ``file`` on the head's machine.
        best: of other jobs, so far.
    """

    job: str
    sources: Sequence[CandidateSource]
    keys: Sequence[GroupKey]
    state: bytes | None = None
    file: str = ""
    best: tuple[str, float] | None = None


# messages to the head


@dataclass(frozen=True)
class Ready:
    """The worker waits for jobs; ``software`` as in run.json, ``code`` a digest, ``node`` the machine's name."""

    planner: MemoryPlanner
    software: dict[str, str | None]
    code: str
    node: str


@dataclass(frozen=True)
class Said:
    """A message of the package for the user."""

    level: int
    text: str


@dataclass(frozen=True)
class Checked:
    """What came of a Check: the widths of what can be trained, and the faults of what cannot."""

    job: str
    widths: Mapping[str, Widths]
    faults: Faults


@dataclass(frozen=True)
class Progress:
    job: str
    iteration: int
    env_steps: int
    best: tuple[str, float] | None


@dataclass(frozen=True)
class Evaluated:
    """The rows of results.csv as they are now, and the memory used, in bytes."""

    job: str
    results: Sequence[Result]
    peak: int


@dataclass
class Saved:
    """A checkpoint: ``state`` is the content of a job's file, ``rows`` what was logged since the one before."""

    job: str
    iteration: int
    state: bytes
    rows: Rows


@dataclass(frozen=True)
class Finished:
    """The end of a wave; ``policies``: the content of each measured policy's file."""

    job: str
    results: Sequence[Result]
    policies: Mapping[GroupKey, bytes]
    rows: Rows
    peak: int


@dataclass(frozen=True)
class Stopped:
    """The wave was asked to stop, and has saved a checkpoint."""

    job: str


@dataclass(frozen=True)
class OutOfMemory:
    job: str
    reason: str


@dataclass(frozen=True)
class Broken:
    """The job cannot go on, here or elsewhere; ``mistake``: it is one of the user's."""

    reason: str
    mistake: bool


class Worker:
    """Does one job after the other in a thread of its own. Its methods return at once, but for ``poll``."""

    def __init__(self, setup: Setup) -> None:
        self._setup, self._cfg = setup, setup.cfg
        self._news = threading.Condition()
        self._messages: list[Any] = []
        self._progress: Progress | None = None
        self._stop = StopRequest()
        self._groups: dict[GroupKey, Group] = {}  # that are prepared and not trained yet
        if setup.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, setup.cores)
        self._start(self._get_ready)

    def begin(self, order: Check | Train) -> None:
        """Take up a job."""
        self._start(lambda: self._check(order) if isinstance(order, Check) else self._train(order))

    def stop(self, by: int | str) -> None:
        """Stop the training after its iteration, with a checkpoint."""
        self._stop(by)

    def poll(self) -> list[Any]:
        """Wait a moment for messages, and hand them over."""
        with self._news:
            self._news.wait_for(lambda: bool(self._messages), POLL_SECONDS)
            messages, self._messages = self._messages, []
            if self._progress is not None:
                messages.append(self._progress)
                self._progress = None
            return messages

    # the jobs, in their thread

    def _start(self, job: Any) -> None:
        threading.Thread(target=self._guarded, args=(job,), daemon=True).start()

    def _guarded(self, job: Any) -> None:
        try:
            if self._cfg.device == "cpu":
                torch.set_num_threads(1)  # as in a run of one process
            with _heard(self._tell):
                job()
        except UserError as error:
            self._tell(Broken(str(error), True))
        except BaseException:
            self._tell(Broken(traceback.format_exc(), False))

    def _get_ready(self) -> None:
        with user_input():
            code = code_digest(self._cfg)
            planner = MemoryPlanner(self._cfg, self._setup.sharers)
        planner.take_probe()  # of no use to the head
        release(self._cfg.device)
        self._tell(Ready(planner, software(self._cfg.device), code, platform.node()))

    def _check(self, order: Check) -> None:
        groups, faults = prepare(self._cfg, order.sources, self._setup.fitness)
        for error in faults.values():
            error.__traceback__ = error.__cause__ = error.__context__ = None
        release(self._cfg.device)
        self._groups.update({(group.name, group.seed): group for group in groups})
        self._tell(Checked(order.job, {group.name: group.widths for group in groups}, faults))

    def _train(self, order: Train) -> None:
        logs = RunLogs.collect(self._cfg.evaluation.record)
        session: Session | None = None
        try:
            groups = self._take(order)
            counts: dict[str, int] = {}

            def save(state: dict[str, Any]) -> None:
                rows = logs.take()
                _add(counts, rows.counts)
                self._save(Saved(order.job, state["iteration"], pack_job(list(order.keys), state, counts), rows))

            wave = Wave(groups, best=order.best)
            session = open_session(
                self._cfg, wave, logs, functools.partial(self._evaluated, order.job), save,
                reporter=_Heard(self, order.job), stop=self._stop,
            )  # fmt: skip
            if order.state is not None:
                job, state = load_job(Path(order.file), order.state)
                counts.update(job.rows)
                session.restore(state, Path(order.file))
            session.train()
            if session.complete:
                rows, peak = results.trained(session), used_bytes(self._cfg.device)
                measured = {(row.candidate, row.seed) for row in rows if row.measured}
                exports = {key: export() for key, export in results.policies(session).items() if key in measured}
                self._tell(Finished(order.job, rows, exports, logs.take(), peak))
            else:
                self._tell(Stopped(order.job))
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            self._tell(OutOfMemory(order.job, str(error).strip().splitlines()[0] if str(error).strip() else "memory"))
        finally:
            session = None
            logs.close()
            release(self._cfg.device)

    def _take(self, order: Train) -> list[Group]:
        """The groups of a job, which this or another worker has checked."""
        if any(key not in self._groups for key in order.keys):
            groups, faults = prepare(self._cfg, order.sources, self._setup.fitness)
            known = {(group.name, group.seed): group for group in groups}
            lost = {name: faults[name] for name, _ in order.keys if name in faults}
            for name, error in lost.items():
                raise UserError(f"{name} was checked, and cannot be loaded on {platform.node()}: {error}")
        else:
            known = {}
        # each group trains once: its functions may keep something
        own = {key: self._groups.pop(key, None) for key in order.keys}
        return [own[key] or known[key] for key in order.keys]

    def _evaluated(self, job: str, session: Session) -> None:
        self._tell(Evaluated(job, results.trained(session), used_bytes(self._cfg.device)))

    # to the head

    def _tell(self, message: Any) -> None:
        with self._news:
            self._messages.append(message)
            self._news.notify_all()

    def _save(self, saved: Saved) -> None:
        """Tell of a checkpoint; one that the head has not taken yet is of no use any more."""
        with self._news:
            for k, older in enumerate(self._messages):
                if isinstance(older, Saved):
                    older.rows.extend(saved.rows)
                    saved.rows = older.rows
                    del self._messages[k]
                    break
            self._messages.append(saved)
            self._news.notify_all()

    def report(self, progress: Progress) -> None:
        """Tell how far the training is, with the next messages."""
        with self._news:
            self._progress = progress


class _Heard(Reporter):
    """Passes the progress of a session on."""

    def __init__(self, worker: Worker, job: str) -> None:
        self._worker, self._job = worker, job

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        self._worker.report(Progress(self._job, iteration, env_steps, best))


class _Listener(logging.Handler):
    def __init__(self, tell: Any) -> None:
        super().__init__(logging.INFO)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        if not is_muted():
            self._tell(Said(record.levelno, record.getMessage()))


@contextlib.contextmanager
def _heard(tell: Any) -> Any:
    """Pass on what the package says in the block."""
    handler = _Listener(tell)
    logging.getLogger(LOGGERS[0]).setLevel(logging.INFO)
    logging.captureWarnings(True)
    for name in LOGGERS:
        logging.getLogger(name).addHandler(handler)
    try:
        yield
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(handler)


def code_digest(cfg: DictConfig) -> str:
    """Return a digest of the code that a run depends on: this package, and its task if that is from outside."""
    # not of all outside tasks: the head's process may have used others before, which the workers do not know
    task = get_spec(cfg.task_source or cfg.task.name)
    return hashlib.sha256(f"{package_code()} {task.digest}".encode()).hexdigest()


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error is torch's, Python's or Warp's way to say that there is no memory left."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "failed to allocate" in text)
