"""Starting Ray on this machine, and connecting to a Ray cluster."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from envcoder_bench.core.errors import NoWorker, UserError, message_line
from envcoder_bench.run.workers.devices import Devices

MIN_VERSION = (2, 60)
INSTALL = "pip install 'ray>=2.60', or envcoder-bench[ray]"
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
_UNUSED = ("start_monitor", "start_log_monitor", "start_api_server")  # of Ray's Node; each is a Python process
_LOCAL_ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # no telemetry, only 127.0.0.1
_GIB = 2**30


def import_ray() -> Any:
    """Import Ray. Raises UserError if it is not installed or too old."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--devices and --ray need Ray, which is not installed ({error}): {INSTALL}") from error
    if tuple(int(part) for part in ray.__version__.split(".")[:2]) < MIN_VERSION:
        raise UserError(f"--devices and --ray need Ray 2.60 or later, this is {ray.__version__}: {INSTALL}")
    return ray


@contextlib.contextmanager
def ray_started(devices: Devices) -> Iterator[None]:
    """Start Ray on this machine or connect to a cluster inside the block. A Ray that is already started is reused.

    Raises UserError if Ray is not installed or too old, cannot be started, or the cluster does not answer.
    """
    ray, address = import_ray(), devices.address
    if address is not None:
        _check_address(address)
    if ray.is_initialized():
        yield
        return
    # the head itself logs the deaths of workers, which Ray prints
    silent = _replaced(ray._private.worker, "print_to_stdstream", lambda *args, **kwargs: None)
    with silent, _environment({}):  # Ray sets RAY_AUTH_MODE
        try:
            with _signal_handlers_kept():
                _start(ray, devices)
        except Exception as error:
            reason = message_line(error)[:600]
            if address is None:
                raise UserError(f"Ray cannot be started: {reason}") from error
            hint = "if the cluster requires a token, set RAY_AUTH_MODE=token here, too (docs/scale.md)"
            raise UserError(f"--ray {address}: cannot connect: {reason}; {hint}") from error
        # Ray replaces the handlers of Ctrl-C when it starts and when it ends
        try:
            yield
        finally:
            with _signal_handlers_kept():
                ray.shutdown()


def _start(ray: Any, devices: Devices) -> None:
    if devices.address is not None:
        ray.init(address=devices.address, **_QUIET)
        return
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(map(_cuda_name, devices.gpus))} if devices.gpus else {}
    # Ray is to use 127.0.0.1, as on systems without cluster support. It has no argument for this: it replaces 127.0.0.1
    # by an external address, and reads the environment variable when it is imported, which may have happened before
    loopback = _replaced(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)
    with _environment({**_LOCAL_ENV, **visible}), loopback, contextlib.ExitStack() as stack:
        # one machine has no autoscaler, no logs to collect and no dashboard; ray.init has no argument for the first two
        for name in _UNUSED:
            if hasattr(ray._private.node.Node, name):
                stack.enter_context(_replaced(ray._private.node.Node, name, lambda node, **_: None))
        ray.init(
            address="local",
            num_cpus=2 * (devices.count or 1),  # a replacement may start before Ray frees the core of a lost worker
            num_gpus=len(devices.gpus),
            include_dashboard=False,
            object_store_memory=_object_store_bytes(),
            **_QUIET,
        )


def node_ended() -> bool:
    """Return whether Ray's processes on this machine, which this process started, have ended."""
    node = import_ray()._private.worker._global_node
    return node is not None and any(kind in ("raylet", "gcs_server") for kind, _ in node.dead_processes())


def restart_node(devices: Devices) -> None:
    """Start Ray on this machine again. Raises NoWorker."""
    ray = import_ray()
    with _signal_handlers_kept():
        ray.shutdown()
        try:
            _start(ray, devices)
        except Exception as error:
            raise NoWorker(f"Ray cannot be started again: {message_line(error)[:600]}") from error


def _check_address(address: str) -> None:
    """Raise UserError if nothing listens at HOST:PORT, because Ray would try to connect for minutes."""
    if address == "auto":
        return
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--ray {address} does not answer ({error}): start Ray there with ray start --head --port={port}"
        ) from error


def _cuda_name(number: int) -> str:
    """Return the name in CUDA_VISIBLE_DEVICES of the GPU that torch gives this number."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[number].strip() if visible else str(number)


def _object_store_bytes() -> int:
    """Return the size of the shared memory for messages. Larger messages are spilled to the disk."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, AttributeError):
        shared = os.statvfs("/dev/shm")
        free = min(free, shared.f_bavail * shared.f_frsize)
    return max(_GIB // 8, min(int(0.3 * free), 8 * _GIB))


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Replace a value of Ray's inside the block."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, for the processes that it starts; restore all after it."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore the signal handlers that Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
