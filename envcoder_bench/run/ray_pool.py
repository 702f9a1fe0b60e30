"""Workers as actors of Ray, one for each device: how they start, how messages come, and how their death shows."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterator

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.devices import Devices
from envcoder_bench.run.head import Lost, Pool
from envcoder_bench.run.worker import Check, Ready, Setup, Train, Worker

log = logging.getLogger(__name__)

SILENCE = 60.0  # seconds: a worker that says nothing for so long is given up
PATIENCE = 300.0  # seconds without any worker
LATE = 60.0  # seconds: where one has started, the others are waited for so long
FAILED_STARTS = 2  # of one device: then it is not tried again
LEAST = (2, 60)  # version of Ray
INSTALL = "pip install 'ray>=2.60', or envcoder-bench[ray]"
_OBJECTS = 256 * 2**20  # bytes of shared memory for messages, at least; what is more goes to the disk
_TOKEN = "; if it asks for a token, set RAY_AUTH_MODE=token here, too: docs/scale.md"
# of a Ray that is started here: no reports, all ports on the loopback
_ALONE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@dataclass
class _Slot:
    """A device, and the actor that works on it.

    Attributes:
        number: of the actor; each has its own.
        silent: seconds since it was heard of.
        failed: how often its actor died before it was ready.
    """

    index: int
    number: int = -1
    actor: Any = None
    news: Any = None
    ready: bool = False
    silent: float = 0.0
    failed: int = 0


class RayPool(Pool):
    """One worker for each device; one that dies is replaced."""

    def __init__(self, devices: Devices, limit: int, setup: Callable[[int, int], Setup]) -> None:
        """Start the workers.

        Args:
            limit: no more than so many are of use.
            setup: of a worker, by its place and how many of them share this machine.

        Raises:
            UserError: Ray or the devices are not there.
        """
        self._ray = import_ray()
        there = _free_gpus(self._ray) if devices.count is None else devices.count
        if there < 1:
            raise UserError("--ray: no GPU of the cluster is free; --devices cpu:N trains on its CPUs")
        if there > limit:
            log.info("%s devices, and %s groups to train: %s are used", there, limit, limit)
        size = min(there, limit)
        resources = {"num_gpus": 1, "num_cpus": 0} if devices.kind == "cuda" else {"num_gpus": 0, "num_cpus": 1}
        sharers = (
            size if devices.kind == "cpu" else 1
        )  # of a cluster it is not known where they are: as if on one machine
        actor = self._ray.remote(Worker).options(max_restarts=0, max_task_retries=0, max_concurrency=3, **resources)
        self._make = lambda index: actor.remote(setup(index, sharers))
        self._slots = [_Slot(index) for index in range(size)]
        self._count = 0
        self._last = self._began = self._seen = time.monotonic()  # of the last poll, the beginning, a worker
        self._reason = ""
        for slot in self._slots:
            self._start(slot)

    @property
    def starting(self) -> int:
        starting = sum(not slot.ready for slot in self._slots)
        late = time.monotonic() - self._began > LATE and starting < len(self._slots)
        return 0 if late else starting

    def begin(self, worker: int, order: Check | Train) -> None:
        self._slot(worker).actor.begin.remote(order)

    def stop(self, by: int | str) -> None:
        for slot in self._slots:
            slot.actor.stop.remote(by)

    def discard(self, worker: int) -> None:
        slot = self._slot(worker)
        self._end(slot)
        self._start(slot)

    def poll(self) -> list[tuple[int, Any]]:
        if not self._slots:
            raise UserError(f"no worker can be started: {self._reason}")
        found: list[tuple[int, Any]] = []
        refs = {slot.news: slot for slot in self._slots}
        done, _ = self._ray.wait(list(refs), num_returns=len(refs), timeout=0.1)
        if not done:
            done, _ = self._ray.wait(list(refs), num_returns=1, timeout=0.4)
        now = time.monotonic()
        passed, self._last = min(now - self._last, 2.0), now  # this process may have slept, and not the workers
        for ref in done:
            slot = refs[ref]
            try:
                messages = self._ray.get(ref)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                found += self._died(slot, error)
                continue
            slot.silent = -passed
            slot.news = slot.actor.poll.remote()
            for message in messages:
                slot.ready = slot.ready or isinstance(message, Ready)
                found.append((slot.number, message))
        for slot in list(self._slots):
            slot.silent += passed
            if slot.ready and slot.silent > SILENCE:
                found.append((slot.number, Lost(f"it was silent for {SILENCE:.0f} s")))
                self.discard(slot.number)
        if any(slot.ready for slot in self._slots):
            self._seen = now
        if now - self._seen > PATIENCE:
            raise UserError(f"no worker has started within {PATIENCE:.0f} s: is a device of the cluster free?")
        return found

    def close(self) -> None:
        """End all workers."""
        for slot in self._slots:
            self._end(slot)
        self._slots = []

    def _slot(self, worker: int) -> _Slot:
        return next(slot for slot in self._slots if slot.number == worker)

    def _start(self, slot: _Slot) -> None:
        slot.number, self._count = self._count, self._count + 1
        slot.ready, slot.silent = False, 0.0
        slot.actor = self._make(slot.index)
        slot.news = slot.actor.poll.remote()

    def _end(self, slot: _Slot) -> None:
        with contextlib.suppress(Exception):  # it may be dead
            self._ray.kill(slot.actor)

    def _died(self, slot: _Slot, error: Exception) -> list[tuple[int, Any]]:
        reason, text = _reason(error), str(error)
        if "No module named 'envcoder_bench" in text:
            raise UserError("a node of the cluster has no envcoder_bench: install the same version on all nodes")
        found: list[tuple[int, Any]] = [(slot.number, Lost(reason, blames_job="node" not in reason))]
        self._end(slot)
        slot.failed = 0 if slot.ready else slot.failed + 1
        self._reason = reason
        if slot.failed >= FAILED_STARTS:
            log.warning("a worker does not start, and its device is left out: %s", reason)
            self._slots.remove(slot)
        else:
            self._start(slot)
        return found


def _reason(error: Exception) -> str:
    """Why an actor died, in a line."""
    text = " ".join(str(error).split())
    if "node" in text.lower() and ("node has died" in text or "node died" in text or "node was dead" in text):
        return "its node is lost"
    if "running low on memory" in text:  # Ray's own watch killed it
        return "it ran out of main memory"
    if "creation" in text.lower() or "__init__" in text:
        return text[-300:]
    return "its process died"


@contextlib.contextmanager
def started(devices: Devices) -> Iterator[None]:
    """Start Ray here or connect to the cluster, for the block; a Ray that this process has is used as it is.

    Raises:
        UserError: Ray is not installed or too old, or the address does not answer.
    """
    ray = import_ray()
    if devices.address is not None:
        _refuse_silent(devices.address)
    if ray.is_initialized():
        yield
        return
    with _without_remarks(ray), contextlib.ExitStack() as after:
        if "RAY_AUTH_MODE" not in os.environ:
            after.callback(os.environ.pop, "RAY_AUTH_MODE", None)  # Ray sets it where it starts a cluster
        try:
            with _signals_kept():
                _init(ray, devices)
        except UserError:
            raise
        except Exception as error:
            what = "Ray cannot be started" if devices.address is None else f"--ray {devices.address}: cannot connect"
            hint = "" if devices.address is None else _TOKEN
            raise UserError(f"{what}: {' '.join(str(error).split())[:600]}{hint}") from error
        try:
            yield
        finally:
            with _signals_kept():
                ray.shutdown()


def _init(ray: Any, devices: Devices) -> None:
    quiet: dict[str, Any] = dict(log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    if devices.address is not None:
        ray.init(address=devices.address, **quiet)
        return
    gpus = ",".join(_visible(number) for number in devices.gpus)
    with _environment({**_ALONE, **({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})}), _on_loopback(ray):
        ray.init(
            address="local",
            num_cpus=2 * (devices.count or 1),  # another worker may start while a silent one holds its own
            num_gpus=len(devices.gpus),
            include_dashboard=False,
            object_store_memory=_object_store(),
            **quiet,
        )


@contextlib.contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """Let Ray take 127.0.0.1 for this machine's address, as it does where it knows no clusters.

    Ray has no setting for it, and resolves 127.0.0.1 to an outer address. Its variable is read at its import.
    """
    constants = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _without_remarks(ray: Any) -> Iterator[None]:
    """Keep Ray from printing what it thinks of dead workers: stdout is for the ranking, and the head says it."""
    module = ray._private.worker
    before = getattr(module, "print_to_stdstream", None)
    if before is not None:
        module.print_to_stdstream = lambda *args, **kwargs: None
    try:
        yield
    finally:
        if before is not None:
            module.print_to_stdstream = before


def _object_store() -> int:
    """Bytes of shared memory for messages."""
    import psutil

    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, AttributeError):
        shared = os.statvfs("/dev/shm")
        free = min(free, shared.f_bavail * shared.f_frsize)
    return max(_OBJECTS // 2, min(int(0.3 * free), 8 * 2**30))


def _visible(number: int) -> str:
    """How CUDA_VISIBLE_DEVICES calls a GPU that torch numbers so."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[number].strip() if given else str(number)


def _refuse_silent(address: str) -> None:
    """Raise UserError if nothing listens at HOST:PORT: Ray would try for minutes."""
    if address == "auto":
        return
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--ray {address} does not answer ({error}): is Ray started there (ray start --head --port={port})?"
        ) from error


def import_ray() -> Any:
    """The module of Ray. Raises UserError where it is not installed, or too old."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--devices and --ray need Ray, which is not installed ({error}): {INSTALL}") from error
    if tuple(int(part) for part in ray.__version__.split(".")[:2]) < LEAST:
        raise UserError(f"--devices and --ray need Ray 2.60 or later, and this is {ray.__version__}: {INSTALL}")
    return ray


def _free_gpus(ray: Any) -> int:
    return int(ray.available_resources().get("GPU", 0))


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables in the block, for processes that it starts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep Ray from changing what signals do."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
