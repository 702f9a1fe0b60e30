"""Workers as Ray actors, one per device."""

import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from envcoder_bench.core.errors import NoWorker, UserError, message_line
from envcoder_bench.core.run_log import flush_messages
from envcoder_bench.run.workers.devices import Devices
from envcoder_bench.run.workers.head import Pool
from envcoder_bench.run.workers.messages import Ready, Request, WorkerLost, WorkerSetup
from envcoder_bench.run.workers.ray_cluster import import_ray, node_ended, restart_node
from envcoder_bench.run.workers.worker import RemoteWorker

log = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT = 60.0  # seconds without a reply after which a worker is replaced
START_TIMEOUT = 300.0  # seconds without any started worker
STRAGGLER_TIMEOUT = 60.0  # seconds to wait for the remaining workers after the first has started
MAX_FAILED_STARTS = 2  # then a device is given up
_MAX_ELAPSED = 2.0  # seconds between polls; more means that this process was suspended, not that workers are silent


@dataclass(eq=False)
class _Slot:
    """A device and its current worker.

    Attributes:
        worker: number of the worker; each actor has its own.
        reply: reference to the result of the actor's pending ``poll``.
        silence: seconds since the last reply.
        failed_starts: number of consecutive workers that died before they were ready.
    """

    index: int
    worker: int = -1
    actor: Any = None
    reply: Any = None
    ready: bool = False
    silence: float = 0.0
    failed_starts: int = 0


class RayPool(Pool):
    """One worker per device; a worker that dies is replaced, and Ray itself once where this process started it.

    Args:
        setup: returns the arguments of a worker from its index and the numbers of workers that share the memory and
            the cores of a machine.

    Raises:
        UserError: Ray is not installed, or the cluster has no free GPU.
    """

    def __init__(self, devices: Devices, limit: int, setup: Callable[[int, int, int], WorkerSetup]) -> None:
        self._ray, self._devices, self._restarted = import_ray(), devices, False
        on_gpus = devices.kind == "cuda"
        # how many workers: a device each, and no more than there are groups
        count = devices.count
        if count is None:
            count = int(self._ray.available_resources().get("GPU", 0))
        if count < 1:
            raise UserError("--ray: no GPU of the cluster is free; use --devices cpu:N to train on its CPUs")
        if count > limit:
            log.info("using %s of %s devices, because there are %s groups to train", limit, count, limit)
            count = limit
        # Ray never restarts an actor or a call: the pool decides, and counts losses
        resources = {"num_gpus": int(on_gpus), "num_cpus": int(not on_gpus)}
        actor = self._ray.remote(RemoteWorker).options(
            max_restarts=0, max_task_retries=0, max_concurrency=3, **resources
        )
        neighbours = count  # the nodes of CPU workers are unknown in advance: assume that all share one
        if on_gpus:
            gpus = [int(node["Resources"].get("GPU", 0)) for node in self._ray.nodes() if node["Alive"]]
            neighbours = min(count, max([1, *gpus]))
        self._create = lambda index: actor.remote(setup(index, 1 if on_gpus else count, neighbours))
        self._slots = [_Slot(index) for index in range(count)]
        self._num_created = 0
        self._polled_at = self._ready_at = time.monotonic()
        self._last_loss = ""
        for slot in self._slots:
            self._start(slot)

    @property
    def num_starting(self) -> int:
        starting = sum(not slot.ready for slot in self._slots)
        # the start of the first may take minutes, in which kernels are compiled; the others take less
        late = time.monotonic() - self._first_ready_at > STRAGGLER_TIMEOUT and starting < len(self._slots)
        return 0 if late else starting

    def submit(self, worker: int, request: Request) -> None:
        self._find(worker).actor.submit.remote(request)

    def stop(self, by: int | str) -> None:
        for slot in self._slots:
            slot.actor.stop.remote(by)

    def restart(self, worker: int) -> None:
        slot = self._find(worker)
        self._kill(slot)
        self._start(slot)

    def poll(self) -> list[tuple[int, Any]]:
        if not self._slots:
            raise NoWorker(f"no worker can be started: {self._last_loss}")
        if self._devices.address is None and node_ended():
            return self._restart_node()
        # all answers at once; wait longer only if there is none
        slots = {slot.reply: slot for slot in self._slots}
        done, _ = self._ray.wait(list(slots), num_returns=len(slots), timeout=0.1)
        if not done:
            done, _ = self._ray.wait(list(slots), num_returns=1, timeout=0.4)
        # silence counts only while the head listens: it may have been suspended itself
        now = time.monotonic()
        elapsed, self._polled_at = min(now - self._polled_at, _MAX_ELAPSED), now
        for slot in self._slots:
            slot.silence += elapsed
        messages = [message for reply in done for message in self._receive(slots[reply])]
        for slot in self._slots:
            if slot.ready and slot.silence > HEARTBEAT_TIMEOUT:
                messages.append((slot.worker, WorkerLost(f"no heartbeat for {HEARTBEAT_TIMEOUT:.0f} s")))
                self.restart(slot.worker)
        if any(slot.ready for slot in self._slots):
            self._ready_at = now
        if now - self._ready_at > START_TIMEOUT:
            raise NoWorker(f"no worker started within {START_TIMEOUT:.0f} s: check that the cluster has free devices")
        return messages

    def _restart_node(self) -> list[tuple[int, Any]]:
        if self._restarted:
            raise NoWorker("Ray's processes on this machine have ended twice")
        log.warning(
            "Ray's processes on this machine have ended: they are started again, and its jobs go on from their last"
            " checkpoints"
        )
        flush_messages()  # the start takes seconds
        self._restarted = True
        lost = [(slot.worker, WorkerLost("its node failed", is_crash=False)) for slot in self._slots]
        restart_node(self._devices)
        for slot in self._slots:
            self._start(slot)
        self._polled_at = self._ready_at = time.monotonic()
        return lost

    def close(self) -> None:
        for slot in self._slots:
            self._kill(slot)
        self._slots = []

    def _receive(self, slot: _Slot) -> list[tuple[int, Any]]:
        """Return the messages of a finished ``poll`` and start the next one."""
        try:
            messages = self._ray.get(slot.reply)
        except self._ray.exceptions.RayTaskError:  # a bug in ``Worker.poll``
            raise
        except self._ray.exceptions.RayError as error:
            return [self._replace_dead(slot, error)]
        slot.silence = 0.0
        slot.reply = slot.actor.poll.remote()
        if any(isinstance(message, Ready) for message in messages):
            slot.ready, self._first_ready_at = True, min(self._first_ready_at, time.monotonic())
        return [(slot.worker, message) for message in messages]

    def _find(self, worker: int) -> _Slot:
        return next(slot for slot in self._slots if slot.worker == worker)

    def _start(self, slot: _Slot) -> None:
        slot.worker, self._num_created = self._num_created, self._num_created + 1
        slot.ready, slot.silence = False, 0.0
        if not any(other.ready for other in self._slots):
            self._first_ready_at = math.inf
        slot.actor = self._create(slot.index)
        slot.reply = slot.actor.poll.remote()

    def _kill(self, slot: _Slot) -> None:
        with contextlib.suppress(Exception):  # it may be dead
            self._ray.kill(slot.actor)

    def _replace_dead(self, slot: _Slot, error: Exception) -> tuple[int, WorkerLost]:
        """Start a new worker on the device of a dead one, unless starts have failed repeatedly."""
        if "No module named 'envcoder_bench" in str(error):
            raise UserError("envcoder_bench is not installed on a node of the cluster: install the same on all nodes")
        loss = _loss(error)
        lost, self._last_loss = (slot.worker, loss), loss.reason
        self._kill(slot)
        slot.failed_starts = 0 if slot.ready else slot.failed_starts + 1
        if slot.failed_starts < MAX_FAILED_STARTS:
            self._start(slot)
        else:
            log.warning("a worker failed to start twice, its device is not used: %s", loss.reason)
            self._slots.remove(slot)
        return lost


def _loss(error: Exception) -> WorkerLost:
    """Return why an actor died, from Ray's error message."""
    text = message_line(error)
    if any(words in text for words in ("node has died", "node died", "node was dead")):
        return WorkerLost("its node failed", is_crash=False)
    if "running low on memory" in text:  # killed by Ray's memory monitor
        return WorkerLost("out of main memory")
    if "creation" in text.lower() or "__init__" in text:
        return WorkerLost(text[-300:], is_crash="node" not in text[-300:])
    return WorkerLost("its process died")
