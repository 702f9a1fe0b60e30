"""The start of a run's workers, in this process or on several devices, and their check of the candidates."""

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from envcoder_bench.core.cpus import usable_cpus
from envcoder_bench.core.errors import user_input
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare import ahead
from envcoder_bench.run.prepare.groups import Faults
from envcoder_bench.run.prepare.plan import GroupFacts, MemoryPlanner, split
from envcoder_bench.run.seeds import run_seeds
from envcoder_bench.run.workers.devices import Devices, requested_devices
from envcoder_bench.run.workers.head import Head, JobHandler, Pool
from envcoder_bench.run.workers.inline_pool import InlinePool
from envcoder_bench.run.workers.jobs import Job
from envcoder_bench.run.workers.messages import Check, Checked, WorkerSetup
from envcoder_bench.run.workers.worker import code_digest
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.tasks.base import BASELINES
from envcoder_bench.trainers.base import Widths

log = logging.getLogger(__name__)


@contextlib.contextmanager
def workers(
    cfg: DictConfig, sources: Sequence[CandidateSource], fitness: CandidateSource | None, limit: int
) -> Iterator[Head]:
    """Start the workers of a run, at most ``limit``; they end with the block.

    Args:
        sources: the candidates, if the caches of a first run are to be filled for them.

    Raises:
        UserError: Ray or the devices are not available, or the software of two machines differs.
    """
    devices = requested_devices(cfg)
    start = _start_local(cfg, sources, fitness) if devices is None else _start_remote(cfg, devices, fitness, limit)
    with start as pool:
        try:
            head = Head(pool, code_digest(cfg))
            head.wait_for_workers()
            if not head.is_local:
                counts = Counter(head.devices)
                log.info("workers: %s", ", ".join(f"{count} x {name}" for name, count in counts.items()))
            yield head
        finally:
            pool.close()


@contextlib.contextmanager
def _start_local(
    cfg: DictConfig, sources: Sequence[CandidateSource], fitness: CandidateSource | None
) -> Iterator[Pool]:
    with ahead.start(cfg, sources, fitness):
        with user_input():  # the task's YAML is read here
            planner = MemoryPlanner(cfg)
        if planner.ready:  # else the plan refuses it
            planner.refuse_too_large()
        yield InlinePool(WorkerSetup(cfg, fitness), planner, code_digest(cfg))


@contextlib.contextmanager
def _start_remote(cfg: DictConfig, devices: Devices, fitness: CandidateSource | None, limit: int) -> Iterator[Pool]:
    from envcoder_bench.run.workers.ray_cluster import ray_started  # not at the top: runs in one process need no Ray
    from envcoder_bench.run.workers.ray_pool import RayPool

    def setup(index: int, sharers: int, neighbours: int) -> WorkerSetup:
        local_cpu = devices.kind == "cpu" and devices.address is None
        if local_cpu:
            return WorkerSetup(cfg, fitness, sharers, _cores(index, sharers))  # cores of its own
        return WorkerSetup(cfg, fitness, sharers, neighbours=neighbours)

    with ray_started(devices):
        yield RayPool(devices, limit, setup)


@contextlib.contextmanager
def shared_ray(cfg: DictConfig) -> Iterator[None]:
    """Start Ray once for all runs inside the block, if the config specifies several devices."""
    devices = requested_devices(cfg)
    if devices is None:
        yield
        return
    from envcoder_bench.run.workers.ray_cluster import ray_started

    with ray_started(devices):
        yield


def _cores(index: int, count: int) -> tuple[int, ...] | None:
    """Return the share of a worker of this machine's cores, or None for all if there are more workers than cores."""
    if count > usable_cpus() or not hasattr(os, "sched_getaffinity"):
        return None
    return tuple(split(sorted(os.sched_getaffinity(0)), count)[index])


def check(
    head: Head,
    cfg: DictConfig,
    sources: Sequence[CandidateSource],
    checked: Callable[[Mapping[str, Widths]], None] | None = None,
) -> tuple[list[GroupFacts], Faults]:
    """Check candidates on the workers; return the groups that can be trained, and the faults of the others.

    ``checked`` is as of ``prepare``.
    """
    candidates = [source.name for source in sources if source.name not in BASELINES]
    parts = split(candidates, max(1, min(len(candidates), len(head.workers))))
    checking = _Checking(sources, checked if head.is_local else None)
    head.run([Job(tuple(part), len(part)) for part in parts], checking)
    names = [source.name for source in sources]
    widths = {name: checking.widths[name] for name in names if name in checking.widths}
    if checked is not None and not head.is_local:
        checked(widths)
    groups = [GroupFacts(name, seed, own) for name, own in widths.items() for seed in run_seeds(cfg)]
    return groups, {name: checking.faults[name] for name in names if name in checking.faults}


class _Checking(JobHandler):
    item = "candidate"

    def __init__(
        self, sources: Sequence[CandidateSource], settle: Callable[[Mapping[str, Widths]], None] | None
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
        """There is no state."""

    def failed(self, job: Job, reason: str) -> None:
        for name in job.items:
            error = f"its check crashed two workers: {reason}"
            self.faults[name] = CandidateError(error, self._sources[name].file)
