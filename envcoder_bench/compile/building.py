"""Compile kernels in worker processes, which are killed when they take too long or too much memory."""

import contextlib
import ctypes
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import psutil  # rl_games' own dependency

from mujoco_batches.process import own_cpus

# limits of processor time per kernel and per line of it, in seconds; ordinary code takes less than a tenth
LIMIT, LIMIT_PER_LINE = 20.0, 0.005
PATIENCE = 6.0  # wall-clock seconds allowed per second of processor time, for busy machines
TELL_AFTER, TELL_EVERY = 10.0, 30.0  # seconds
MEMORY = 4 << 30  # bytes of data of a worker process
BROKEN_OFF = "its compiler "  # prefix of the errors of kernels whose compiler was killed or crashed
_BOOT = "import sys; sys.path[:] = {path!r}; from envcoder_bench.compile.building import serve; serve()"
_log = logging.getLogger(__name__)
_failed: dict[str, str] = {}  # errors of the kernels that could not be compiled, as long as this process lives


def build(codes: Sequence[str], target: str) -> list[str]:
    """Compile kernels into Warp's cache, as many at a time as there are processors, or this process's share of them.

    Args:
        codes: as ``warp_kernel.make_kernel`` takes them; ``target``: as ``warp_kernel.target`` gives it.

    Returns:
        For each kernel, the error if it was not compiled, else an empty text.
    """
    waiting = [code for code in dict.fromkeys(codes) if code not in _failed]
    if waiting:
        # the longest first, so that none is left to a single process at the end
        _Building(deque(sorted(waiting, key=len, reverse=True)), target).see_through()
    return [_failed.get(code, "") for code in codes]


@dataclass
class _Worker:
    """A worker process and the kernel it is compiling."""

    process: subprocess.Popen
    code: str | None = None
    seconds: float = 0.0  # processor time before this kernel
    until: float = 0.0  # of the monotonic clock

    def used(self) -> float:
        """Return the seconds of processor time spent on this kernel."""
        with contextlib.suppress(psutil.Error):
            return self.total() - self.seconds
        return 0.0

    def total(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


class _Building:
    def __init__(self, waiting: deque[str], target: str) -> None:
        self._waiting, self._target, self._total = waiting, target, len(waiting)
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._began = time.monotonic()
        self._tell_at = self._began + TELL_AFTER

    def see_through(self) -> None:
        """Compile all kernels; Ctrl-C stops at once."""
        try:
            # all at once: a kernel is longer than a pipe's buffer, so that giving it waits until a process has started
            for _ in range(min(len(self._waiting), own_cpus())):
                self._start()
            while self._waiting or any(worker.code is not None for worker in self._workers):
                self._share_out()
                for key, _ in self._selector.select(timeout=0.1):
                    self._take(key.data)
                for worker in [each for each in self._workers if each.code is not None]:
                    self._watch(worker)
                self._tell()
        finally:
            for worker in self._workers:
                _end(worker.process)
            self._selector.close()

    def _share_out(self) -> None:
        """Give every idle process a kernel, and start more processes up to the limit."""
        idle = [worker for worker in self._workers if worker.code is None]
        while self._waiting and (idle or len(self._workers) < own_cpus()):
            worker = idle.pop() if idle else self._start()
            code = self._waiting.popleft()
            worker.code, worker.seconds = code, worker.total()
            worker.until = time.monotonic() + PATIENCE * _limit(code)
            assert worker.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # a dead process is noticed when its answer is read
                worker.process.stdin.write(json.dumps({"code": code, "target": self._target}).encode() + b"\n")
                worker.process.stdin.flush()

    def _start(self) -> _Worker:
        path = [os.path.abspath(entry) for entry in sys.path]
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT.format(path=path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C does not reach it
        )
        worker = _Worker(process)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        self._workers.append(worker)
        return worker

    def _take(self, worker: _Worker) -> None:
        """Read an answer; if there is none, the process has died."""
        assert worker.process.stdout is not None and worker.code is not None
        line = worker.process.stdout.readline()
        error = json.loads(line)["error"] if line else f"{BROKEN_OFF}crashes or takes too much memory"
        if error:
            _failed[worker.code] = error
        worker.code = None
        if not line:
            self._drop(worker)

    def _watch(self, worker: _Worker) -> None:
        """Kill a process that takes too long."""
        assert worker.code is not None
        limit = _limit(worker.code)
        if worker.used() > limit or time.monotonic() > worker.until:
            _failed[worker.code] = f"{BROKEN_OFF}takes more than {limit:.0f} s of processor time"
            self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        _end(worker.process)
        self._workers.remove(worker)

    def _tell(self) -> None:
        now = time.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + TELL_EVERY
            left = len(self._waiting) + sum(worker.code is not None for worker in self._workers)
            done = f"{self._total - left} of {self._total} kernels done"
            _log.warning("compiling candidate functions for %.0f s: %s", now - self._began, done)


def _limit(code: str) -> float:
    return LIMIT + LIMIT_PER_LINE * code.count("\n")


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]


def serve() -> None:
    """Compile kernels in a worker process until standard input ends.

    It reads lines of JSON ``{"code": ..., "target": ...}`` and writes ``{"error": ...}`` to standard output after each;
    the text is empty if the kernel was compiled.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG: end with the parent
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # compilers print to standard output
    from envcoder_bench.compile import warp_kernel

    for line in sys.stdin:
        order, error = json.loads(line), ""
        try:
            warp_kernel.build(order["code"], order["target"])
        except Exception as fault:
            error = " ".join(str(fault).split()) or type(fault).__name__
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"error": error[:500]}), file=answers, flush=True)
