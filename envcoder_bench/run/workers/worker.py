"""A worker: it executes the jobs of a run and sends messages to the head.

``Worker`` does the work, in this process or in another one. ``RemoteWorker`` gives it a thread and a mailbox;
``ray_pool`` runs that as a Ray actor.
"""

import contextlib
import logging
import os
import platform
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.compile.cache import package_code
from envcoder_bench.core.errors import UserError, is_out_of_memory, user_input
from envcoder_bench.core.files import digest
from envcoder_bench.core.run_log import Prints, counted_prints, is_muted, listening, note
from envcoder_bench.core.torch_settings import ALONE, use_deterministic_algorithms
from envcoder_bench.results.logs import RunLogs
from envcoder_bench.run.folder.checkpoint import GroupKey, load_job, pack_job
from envcoder_bench.run.folder.provenance import software
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.prepare.forecast import Physics
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner, release, used_bytes
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.run.train.parked import rung_state
from envcoder_bench.run.train.rows import evaluate_untrained, policies, trained
from envcoder_bench.run.train.session import Session, Shared, Wave
from envcoder_bench.run.workers.messages import (
    Check,
    Checked,
    Evaluated,
    JobCheckpoint,
    Opened,
    OutOfMemory,
    Printed,
    Progress,
    Ready,
    Request,
    RungReached,
    Train,
    Trained,
    TrainingStopped,
    UntrainedEvaluated,
    UserMessage,
    WorkerError,
    WorkerSetup,
)
from envcoder_bench.tasks.spec import TaskSpec
from mujoco_batches.process import share_cpus

Send = Callable[[Any], None]


class Worker:
    """Checks candidates and trains waves on one device, one job after another.

    Args:
        keeps_parked: keep the states of groups that wait at a rung, for jobs ``from_rung``.

    Attributes:
        planner: of the device.
    """

    def __init__(self, spec: RunSpec, planner: MemoryPlanner, keeps_parked: bool = False) -> None:
        self._spec, self.planner = spec, planner
        self._groups: dict[GroupKey, Group] = {}  # prepared and not trained yet
        self._keeps_parked = keeps_parked
        self._parked: dict[GroupKey, dict[str, Any]] = {}

    def check(self, request: Check, send: Send) -> None:
        """Load, check and trace candidates; send ``Checked``."""
        probe = self.planner.take_probe()
        groups, faults = prepare(replace(self._spec, sources=tuple(request.sources)), probe, request.settle)
        if probe is not None and self._spec.config.device == "cpu":
            self.planner.physics = Physics.of(probe)  # now that nothing else needs its state
        del probe
        release(self._spec.config.device)
        self._groups.update({group.key: group for group in groups})
        send(Checked(request.job, {group.name: group.widths for group in groups}, faults))

    def train(self, request: Train, send: Send, shared: Shared) -> None:
        """Train a wave; send ``Trained``, ``RungReached`` or ``TrainingStopped`` at the end.

        The rows that the logs of ``shared`` hold in memory are sent.
        """
        try:
            self._train_wave(request, send, shared)
        finally:
            release(self._spec.config.device)

    def _train_wave(self, request: Train, send: Send, shared: Shared) -> None:
        job, keys, logs = request.job, list(request.groups), shared.logs
        self._spec = spec = self._spec.changed(seeds=request.seeds)
        cfg = spec.config
        counts: Counter[str] = Counter()  # rows logged since the beginning of the job, by file

        def on_evaluation(session: Session) -> None:
            send(Evaluated(job, trained(session), used_bytes(cfg.device)))

        def save(state: dict[str, Any]) -> None:
            rows = logs.take()
            counts.update(rows.counts)
            send(JobCheckpoint(job, state["iteration"], pack_job(keys, state, dict(counts)), rows))

        with contextlib.ExitStack() as one_thread:
            one_thread.enter_context(ALONE)
            groups = self._take_groups(request)
            wave = Wave(groups, request.number, request.total, request.best, request.until)
            untrained = [group for group in groups if group.key in request.untrained]
            if untrained:
                rows, played = evaluate_untrained(spec, untrained, logs)
                send(UntrainedEvaluated(job, rows, logs.take(), played))
                release(cfg.device)
            session = Session(spec, wave, shared, on_evaluation, save)
            counts.update(self._continue(session, request))
            began = session.iteration
            send(Opened(job))  # only now: the checkpoint fits the config
            if cfg.device == "cpu":
                one_thread.close()  # CUDA graphs are captured, which other threads must not disturb
            session.train()
            if session.complete:
                is_kept = cfg.save_state and not cfg.race.enabled  # a race cannot be extended
                state = pack_job(keys, session.state(), {}) if is_kept else None
                results, files = trained(session), dict(policies(session))
                send(Trained(job, results, files, logs.take(), state, session.trajectories))
            elif session.reached:
                self._groups.update({group.key: group for group in groups})  # they go on from here
                send(self._park(session, job, logs, began))
            else:
                send(TrainingStopped(job, session.iteration))

    def _continue(self, session: Session, request: Train) -> dict[str, int]:
        """Restore what a wave begins with, if it does not begin anew; return the rows that its job has logged."""
        rows, file = {}, Path(request.checkpoint_file)
        if request.from_rung:
            session.join([self._parked.pop(key) for key in request.groups], file)
        elif request.checkpoint_file:
            saved, state = load_job(file, request.checkpoint)
            rows = saved.rows
            if saved.parked:
                session.join(state["parts"], file)
            else:
                session.restore(state, file)
            iteration = session.iteration
            note(f"wave {request.number} of {request.total} goes on from iteration {iteration}, {file.name}")
        return rows

    def _park(self, session: Session, job: str, logs: RunLogs, began: int) -> RungReached:
        """Return the message on groups that wait at a rung; the worker in the run's process keeps their states."""
        state = rung_state(session)
        alive, policies_of_alive = [(row["candidate"], row["seed"]) for row in state["results"]], {}
        if self._keeps_parked:
            policies_of_alive = dict(zip(alive, state["policies"]))
            # without the groups that were stopped at an earlier rung
            waiting = {key: part for key, part in self._parked.items() if part["iteration"] >= began}
            self._parked = {**waiting, **dict(zip(alive, state["parts"]))}
        return RungReached(job, trained(session), pack_job(alive, state, {}), logs.take(), policies_of_alive)

    def _take_groups(self, request: Train) -> list[Group]:
        """Return the groups of a wave; those that another worker checked are prepared first.

        A prepared group is trained at most once, because its functions may keep values.
        """
        taken = {key: self._groups.pop(key) for key in request.groups if key in self._groups}
        if len(taken) < len(request.groups):
            groups, faults = prepare(replace(self._spec, sources=tuple(request.sources)))
            for name, _ in request.groups:
                if name in faults:
                    raise UserError(f"{name} is valid, but cannot be loaded on {platform.node()}: {faults[name]}")
            taken = {**{group.key: group for group in groups}, **taken}
        return [taken[key] for key in request.groups]


class RemoteWorker:
    """A worker that executes jobs in a thread. All methods except ``poll`` return immediately."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup, self._cfg = setup, setup.cfg
        self._outbox = Outbox()
        self._stop = StopRequest(signals=())
        self._prints = Prints(
            lambda text: self._outbox.put(Printed(text, on_screen=True)),
            lambda text: self._outbox.put(Printed(text, on_screen=False)),
        )
        if setup.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, setup.cores)
        share_cpus(setup.neighbours)
        self._run(self._start)

    def submit(self, request: Request) -> None:
        """Start a job."""
        if isinstance(request, Check):
            self._run(lambda: self._worker.check(request, self._outbox.put))
        else:
            self._run(lambda: self._train(request))

    def stop(self, by: int | str) -> None:
        """Stop training after the current iteration, with a checkpoint."""
        self._stop(by)

    def poll(self) -> list[Any]:
        """Wait briefly for messages and return them."""
        return self._outbox.take()

    def _run(self, work: Callable[[], None]) -> None:
        threading.Thread(target=self._guard, args=(work,), daemon=True).start()

    def _guard(self, work: Callable[[], None]) -> None:
        """Send the exceptions and log messages of a thread to the head."""
        try:
            configure_torch(self._cfg)
            logging.captureWarnings(True)
            with listening(_ForwardingHandler(self._outbox)), counted_prints(self._prints):
                work()
        except UserError as error:
            self._outbox.put(WorkerError(str(error), True))
        except BaseException:
            self._outbox.put(WorkerError(traceback.format_exc(), False))

    def _start(self) -> None:
        with user_input():
            spec = RunSpec.of(self._cfg, fitness=self._setup.fitness)
            code = code_digest(spec.task)
            planner = MemoryPlanner(spec, self._setup.sharers)
        planner.measure()  # now, because the messages of this block are forwarded
        planner.close()
        release(self._cfg.device)
        self._worker = Worker(spec, planner)
        self._outbox.put(Ready(planner, software(self._cfg.device), code, platform.node()))

    def _train(self, request: Train) -> None:
        logs = RunLogs.collect()
        try:
            reporter = ProgressReporter(request.job, self._outbox)
            self._worker.train(request, self._outbox.put, Shared(logs, reporter, self._stop))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            lines = str(error).strip().splitlines()
            self._outbox.put(OutOfMemory(request.job, lines[0] if lines else "memory"))
        finally:
            logs.close()


def configure_torch(cfg: RunConfig) -> None:
    """Set torch's threads and algorithms for a run on this process's device."""
    if cfg.device == "cpu":
        torch.set_num_threads(1)  # the threads are used by the simulator and the learners
    elif cfg.deterministic:
        use_deterministic_algorithms()


def code_digest(task: TaskSpec) -> str:
    """Return a digest of the code that a run depends on: this package, and its task if that is outside the package.

    Other registered tasks are not included, because the workers do not have them.
    """
    return digest(f"{package_code()} {task.digest}")


# messages to the head


POLL_SECONDS = 0.5  # longest wait of ``Outbox.take``


class Outbox:
    """Messages to the head. Of several checkpoints or progress reports only the last is kept."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: list[Any] = []
        self._progress: Progress | None = None

    def put(self, message: Any) -> None:
        """Add a message; a checkpoint replaces the previous one, if that was not taken yet, and includes its rows."""
        with self._changed:
            if isinstance(message, JobCheckpoint):
                for previous in [waiting for waiting in self._messages if isinstance(waiting, JobCheckpoint)]:
                    previous.rows.extend(message.rows)
                    message.rows = previous.rows
                    self._messages.remove(previous)
            self._messages.append(message)
            self._changed.notify_all()

    def set_progress(self, progress: Progress) -> None:
        """Add a progress report to the next messages, without waking up ``take``."""
        with self._changed:
            self._progress = progress

    def take(self) -> list[Any]:
        """Wait at most ``POLL_SECONDS`` for messages and remove them."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._messages), POLL_SECONDS)
            progress = [] if self._progress is None else [self._progress]
            messages = self._messages + progress
            self._messages, self._progress = [], None
            return messages


class ProgressReporter(Reporter):
    """Sends the progress of a job to the head."""

    def __init__(self, job: str, outbox: Outbox) -> None:
        self._job, self._outbox = job, outbox

    def iteration_done(self, iteration: int, env_steps: int, best: tuple[str, float] | None) -> None:
        self._outbox.set_progress(Progress(self._job, iteration, env_steps, best))


class _ForwardingHandler(logging.Handler):
    """Sends messages and warnings to the head."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(logging.INFO)
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        if not is_muted():
            self._outbox.put(UserMessage(record.levelno, record.getMessage()))
