"""Compile and load Warp's kernels at the same time. Warp itself loads each one when it is first launched."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar

from mujoco_batches.compat import warp_modules
from mujoco_batches.compat.warp_solvers import Solvers
from mujoco_batches.process import own_cpus

TELL_AFTER, TELL_EVERY = 10.0, 30.0  # seconds
# The Python code that generates a kernel's source keeps the interpreter for a switch interval, 5 ms. A thread that does
# other work meanwhile would wait so long after each of its operations that it takes several times as long.
SHORT_INTERVAL = 0.0005
_log = logging.getLogger(__name__)
_background: ContextVar[bool] = ContextVar("loads kernels in the background", default=False)


class Loading:
    """Compiles and loads what a function launches, in threads, as many modules at a time as this process has cores.

    The function is called once without launching anything; of its conditions both branches are passed through, of its
    loops one round. It must be one that a CUDA graph can capture, which reads no results. A kernel that is not found in
    this way is loaded when it is launched, and so are all with a version of Warp whose inside is not known.
    """

    def __init__(self, launch: Callable[[], object]) -> None:
        """Begin; other work can be done until ``wait``, except launching these kernels."""
        targets: warp_modules.Targets = {}
        if warp_modules.is_as_expected():
            with contextlib.suppress(Exception), warp_modules.recording(targets):  # a launch may need a loaded kernel
                launch()
        self._began = time.monotonic()
        self._pool, self._solvers = ThreadPoolExecutor(own_cpus()), Solvers(targets)
        # the largest ones first, so that the last one to begin is a short one
        ordered = sorted(targets, key=lambda target: len(target[0].kernels), reverse=True)
        self._turns = _ShortTurns()
        self._loads = [self._pool.submit(self._load, target) for target in ordered]

    def _load(self, target: warp_modules.Target) -> None:
        if self._solvers.wait_for(target):
            warp_modules.load(target)

    def wait(self) -> None:
        """Wait until all are loaded. Raises what a launch would raise if a module cannot be compiled."""
        tell_at = self._began + TELL_AFTER
        try:
            for loaded in as_completed(self._loads):
                loaded.result()
                now, done = time.monotonic(), sum(load.done() for load in self._loads)
                if now >= tell_at and done < len(self._loads):
                    tell_at = now + TELL_EVERY
                    progress = f"{done} of {len(self._loads)} modules done; later starts find them in Warp's cache"
                    _log.warning("compiling the simulator's kernels for %.0f s: %s", now - self._began, progress)
        finally:
            self.stop()

    def stop(self) -> None:
        """End the work; Ctrl-C waits only for what is being compiled."""
        self._solvers.stop()
        self._pool.shutdown(cancel_futures=True)
        self._turns.end()


class _ShortTurns:
    """Python's threads take shorter turns while there is one of these."""

    _lock, _open, _usual = threading.Lock(), 0, 0.0

    def __init__(self) -> None:
        self._ended = False
        with self._lock:
            if _ShortTurns._open == 0:
                _ShortTurns._usual = sys.getswitchinterval()
                sys.setswitchinterval(SHORT_INTERVAL)
            _ShortTurns._open += 1

    def end(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._ended = True
            _ShortTurns._open -= 1
            if _ShortTurns._open == 0:
                sys.setswitchinterval(self._usual)


def load_kernels(launch: Callable[[], object]) -> None:
    """Compile and load what a function launches, as ``Loading`` does, and wait for it."""
    Loading(launch).wait()


@contextlib.contextmanager
def in_background() -> Iterator[None]:
    """Return from the construction of a simulation while its kernels are still being loaded.

    The first call of any of its methods waits for them. Until then its tensors are not filled.
    """
    token = _background.set(True)
    try:
        yield
    finally:
        _background.reset(token)


def is_in_background() -> bool:
    """Return whether a simulation that is constructed now does not wait for its kernels."""
    return _background.get()
