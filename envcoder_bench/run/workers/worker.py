"""A worker of a run on several devices: it executes jobs and sends messages to the head.

It does not depend on how messages are transported; ``ray_pool`` runs ``Worker`` as a Ray actor.
"""

import hashlib
import os
import platform
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.compile.cache import package_code
from envcoder_bench.core.cpus import share_cpus
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.torch_settings import use_deterministic_algorithms
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.run.folder import results
from envcoder_bench.run.folder.checkpoint import GroupKey, load_job, pack_job
from envcoder_bench.run.folder.provenance import software
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner, release, used_bytes
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.run.train.parked import keys_of, rung_state
from envcoder_bench.run.train.session import Session
from envcoder_bench.run.train.session_start import open_session
from envcoder_bench.run.train.training import keeps_state
from envcoder_bench.run.train.untrained import evaluate_untrained
from envcoder_bench.run.train.wave import Wave
from envcoder_bench.run.workers.messages import (
    Check,
    Checked,
    Evaluated,
    JobCheckpoint,
    OutOfMemory,
    Ready,
    Request,
    RungReached,
    Train,
    Trained,
    TrainingStopped,
    UntrainedEvaluated,
    WorkerError,
    WorkerSetup,
)
from envcoder_bench.run.workers.outbox import Outbox, ProgressReporter, forward_logs
from envcoder_bench.tasks.registry import find_spec


class Worker:
    """Executes jobs one after another in a thread. All methods except ``poll`` return immediately."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._cfg, self._fitness = setup.cfg, setup.fitness
        self._outbox = Outbox()
        self._stop = StopRequest()
        self._groups: dict[GroupKey, Group] = {}  # prepared and not trained yet
        if setup.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, setup.cores)
        share_cpus(setup.neighbours)
        self._run(lambda: self._start(setup.sharers))

    def submit(self, request: Request) -> None:
        """Start a job."""
        self._run(lambda: self._check(request) if isinstance(request, Check) else self._train(request))

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
            if self._cfg.device == "cpu":
                torch.set_num_threads(1)  # as in a run in one process
            elif self._cfg.deterministic:
                use_deterministic_algorithms()
            with forward_logs(self._outbox):
                work()
        except UserError as error:
            self._outbox.put(WorkerError(str(error), True))
        except BaseException:
            self._outbox.put(WorkerError(traceback.format_exc(), False))

    def _start(self, sharers: int) -> None:
        with user_input():
            code = code_digest(self._cfg)
            planner = MemoryPlanner(self._cfg, sharers)
        planner.measure()  # now, because the messages of this block are forwarded
        planner.close()
        release(self._cfg.device)
        self._outbox.put(Ready(planner, software(self._cfg.device), code, platform.node()))

    def _check(self, request: Check) -> None:
        groups, faults = prepare(self._cfg, request.sources, self._fitness)
        for error in faults.values():
            error.__traceback__ = error.__cause__ = error.__context__ = None  # may not be picklable
        release(self._cfg.device)
        self._groups.update({(group.name, group.seed): group for group in groups})
        self._outbox.put(Checked(request.job, {group.name: group.widths for group in groups}, faults))

    def _train(self, request: Train) -> None:
        logs = RunLogs.collect()
        try:
            self._train_wave(request, logs)
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            lines = str(error).strip().splitlines()
            self._outbox.put(OutOfMemory(request.job, lines[0] if lines else "memory"))
        finally:
            logs.close()
            release(self._cfg.device)

    def _train_wave(self, request: Train, logs: RunLogs) -> None:
        job, groups = request.job, list(request.groups)
        self._cfg = self._cfg.model_copy(update={"seeds": request.seeds})
        counts: Counter[str] = Counter()  # rows logged since the beginning of the job, by file

        def on_evaluation(session: Session) -> None:
            self._outbox.put(Evaluated(job, results.trained(session), used_bytes(self._cfg.device)))

        def save(state: dict[str, Any]) -> None:
            rows = logs.take()
            counts.update(rows.counts)
            content = pack_job(groups, state, dict(counts))
            self._outbox.put_checkpoint(JobCheckpoint(job, state["iteration"], content, rows))

        wave = Wave(self._take_groups(request), best=request.best, until=request.until)
        untrained = [group for group in wave.groups if (group.name, group.seed) in request.untrained]
        if untrained:
            rows = evaluate_untrained(self._cfg, untrained, logs)
            self._outbox.put(UntrainedEvaluated(job, rows, logs.take()))
            release(self._cfg.device)
        reporter = ProgressReporter(job, self._outbox)
        session = open_session(self._cfg, wave, logs, on_evaluation, save, reporter=reporter, stop=self._stop)
        if request.checkpoint is not None:
            file = Path(request.checkpoint_file)
            saved, state = load_job(file, request.checkpoint)
            counts.update(saved.rows)
            if saved.parked:
                session.join(state["parts"], file)
            else:
                session.restore(state, file)
        session.train()
        if session.complete:
            state = pack_job(groups, session.state(), {}) if keeps_state(self._cfg) else None
            policies = dict(results.policies(session))
            self._outbox.put(Trained(job, results.trained(session), policies, logs.take(), state))
        elif session.reached:
            state = rung_state(session)
            self._groups.update({(group.name, group.seed): group for group in wave.groups})  # they go on from here
            content = pack_job(keys_of(state), state, {})
            self._outbox.put(RungReached(job, results.trained(session), content, logs.take()))
        else:
            self._outbox.put(TrainingStopped(job))

    def _take_groups(self, request: Train) -> list[Group]:
        """Return the groups of a wave; those that another worker checked are prepared first.

        A prepared group is trained at most once, because its functions may keep values.
        """
        taken = {key: self._groups.pop(key) for key in request.groups if key in self._groups}
        if len(taken) < len(request.groups):
            groups, faults = prepare(self._cfg, request.sources, self._fitness)
            for name, _ in request.groups:
                if name in faults:
                    raise UserError(f"{name} is valid, but cannot be loaded on {platform.node()}: {faults[name]}")
            taken = {**{(group.name, group.seed): group for group in groups}, **taken}
        return [taken[key] for key in request.groups]


def code_digest(cfg: RunConfig) -> str:
    """Return a digest of the code that a run depends on: this package, and its task if that is outside the package.

    Other registered tasks are not included, because the workers do not have them.
    """
    task = find_spec(cfg.task_source or cfg.task.name)
    return hashlib.sha256(f"{package_code()} {task.digest}".encode()).hexdigest()


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether torch, Python or Warp raised the error because memory could not be allocated."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "failed to allocate" in text)
