"""The start of a run's workers, in this process or on several devices, and their check of the candidates."""

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envcoder_bench.core.errors import user_input
from envcoder_bench.run.prepare import ahead
from envcoder_bench.run.prepare.groups import Faults
from envcoder_bench.run.prepare.plan import GroupFacts, MemoryPlanner, split
from envcoder_bench.run.seeds import run_seeds
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.run.workers.devices import Devices, requested_devices
from envcoder_bench.run.workers.head import Head, JobHandler, Pool
from envcoder_bench.run.workers.jobs import Job
from envcoder_bench.run.workers.messages import Check, Checked, Ready, Request, WorkerSetup
from envcoder_bench.run.workers.worker import Worker, code_digest
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.trainers.base import Widths
from mujoco_batches.process import usable_cpus

log = logging.getLogger(__name__)


@contextlib.contextmanager
def workers(spec: RunSpec, limit: int) -> Iterator[Head]:
    """Start the workers of a run, at most ``limit``; they end with the block.

    Raises UserError if Ray or the devices are not available, or the software of two machines differs.
    """
    devices = requested_devices(spec.config)
    start = _start_local(spec) if devices is None else _start_remote(spec, devices, limit)
    with start as pool:
        try:
            head = Head(pool, code_digest(spec.task))
            head.wait_for_workers()
            if not head.is_local:
                counts = Counter(head.devices)
                log.info("workers: %s", ", ".join(f"{count} x {name}" for name, count in counts.items()))
            yield head
        finally:
            pool.close()


@contextlib.contextmanager
def _start_local(spec: RunSpec) -> Iterator[Pool]:
    with ahead.start(spec):
        with user_input():  # the task's YAML is read here
            planner = MemoryPlanner(spec)
        if planner.ready:  # else the plan refuses it
            planner.refuse_too_large()
        yield InlinePool(spec, planner, code_digest(spec.task))


@contextlib.contextmanager
def _start_remote(spec: RunSpec, devices: Devices, limit: int) -> Iterator[Pool]:
    from envcoder_bench.run.workers.ray_cluster import ray_started  # not at the top: runs in one process need no Ray
    from envcoder_bench.run.workers.ray_pool import RayPool

    cfg, fitness = spec.config, spec.fitness

    def setup(index: int, sharers: int, neighbours: int) -> WorkerSetup:
        local_cpu = devices.kind == "cpu" and devices.address is None
        if local_cpu:
            return WorkerSetup(cfg, fitness, sharers, _cores(index, sharers))  # cores of its own
        return WorkerSetup(cfg, fitness, sharers, neighbours=neighbours)

    with ray_started(devices):
        yield RayPool(devices, limit, setup)


def shared_ray(cfg: RunConfig) -> contextlib.AbstractContextManager[None]:
    """Start Ray once for all runs inside the block, if the config specifies several devices."""
    devices = requested_devices(cfg)
    if devices is None:
        return contextlib.nullcontext()
    from envcoder_bench.run.workers.ray_cluster import ray_started

    return ray_started(devices)


def _cores(index: int, count: int) -> tuple[int, ...] | None:
    """Return the share of a worker of this machine's cores, or None for all if there are more workers than cores."""
    if count > usable_cpus() or not hasattr(os, "sched_getaffinity"):
        return None
    return tuple(split(sorted(os.sched_getaffinity(0)), count)[index])


def check(
    head: Head,
    cfg: RunConfig,
    sources: Sequence[CandidateSource],
    checked: Callable[[Mapping[str, Widths]], RunConfig] | None = None,
) -> tuple[list[GroupFacts], Faults]:
    """Check candidates on the workers; return the groups that can be trained, and the faults of the others.

    ``checked`` is as of ``prepare``.
    """
    candidates = [source.name for source in sources if source.name not in BASELINES]
    parts = split(candidates, max(1, min(len(candidates), len(head.workers))))

    def settle(widths: Mapping[str, Widths]) -> RunConfig:
        nonlocal cfg
        cfg = cfg if checked is None else checked(widths)
        return cfg

    checking = _Checking(sources, settle if head.is_local else None)
    head.run([Job(tuple(part), len(part)) for part in parts], checking)
    names = [source.name for source in sources]
    widths = {name: checking.widths[name] for name in names if name in checking.widths}
    if not head.is_local:
        settle(widths)
    groups = [GroupFacts(name, seed, of_one) for name, of_one in widths.items() for seed in run_seeds(cfg)]
    return groups, {name: checking.faults[name] for name in names if name in checking.faults}


class _Checking(JobHandler):
    item = "candidate"

    def __init__(
        self, sources: Sequence[CandidateSource], settle: Callable[[Mapping[str, Widths]], RunConfig] | None
    ) -> None:
        self._settle = settle
        self.widths: dict[str, Widths] = {}
        self.faults: Faults = {}
        self._sources = {source.name: source for source in sources}

    def request(self, job: Job) -> Check:
        sources = [source for name, source in self._sources.items() if name in (*BASELINES, *job.items)]
        return Check(job.name, sources, self._settle)

    def handle(self, job: Job, message: Any) -> bool:
        if not isinstance(message, Checked):
            return False
        self.widths.update(message.widths)
        self.faults.update(message.faults)
        return True

    def bisected(self, job: Job) -> None:
        """A check saves nothing that halves of its job could begin with."""

    def failed(self, job: Job, reason: str) -> None:
        for name in job.items:
            message = f"its check crashed two workers: {reason}"
            self.faults[name] = Fault(message, self._sources[name].file, kind="crashed")


# the worker of a run on one device


class InlinePool(Pool):
    """One worker in this process: ``submit`` returns when the job is over, and its messages are handled at once.

    Errors of a job are raised by ``submit``, because no other worker could try it again.
    """

    is_local = True

    def __init__(self, spec: RunSpec, planner: MemoryPlanner, code: str) -> None:
        self._worker = Worker(spec, planner, keeps_parked=True)
        self._ready: list[tuple[int, Any]] = [(0, Ready(planner, {"device": spec.config.device}, code, ""))]

    @property
    def num_starting(self) -> int:
        return 0

    def submit(self, worker: int, request: Request) -> None:
        def send(message: Any) -> None:
            self.deliver(worker, message)

        if isinstance(request, Check):
            self._worker.check(request, send)
        else:
            assert self.shared is not None
            self._worker.train(request, send, self.shared)

    def poll(self) -> list[tuple[int, Any]]:
        messages, self._ready = self._ready, []
        return messages

    def stop(self, by: int | str) -> None:
        """The session knows the run's own request."""

    def restart(self, worker: int) -> None:
        raise NotImplementedError("the worker is this process")

    def close(self) -> None:
        self._worker.planner.close()
