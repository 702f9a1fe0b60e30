"""Compile kernels in worker processes, which are killed when they take too long or too much memory."""

import contextlib
import json
import logging
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import psutil  # rl_games' own dependency

from envcoder_bench.compile.helper_process import end_with_parent, start_helper
from envcoder_bench.core.errors import message_line
from mujoco_batches.process import own_cpus

# limits of processor time per kernel and per line of it, in seconds; ordinary code takes less than a tenth
LIMIT, LIMIT_PER_LINE = 20.0, 0.005
PATIENCE = 6.0  # wall-clock seconds allowed for each second of processor time, for busy machines
REPORT_AFTER, REPORT_EVERY = 10.0, 30.0  # seconds until the first message on the progress, and between two messages
MEMORY = 4 << 30  # bytes of data of a worker process
KILLED = "its compiler "  # prefix of the errors of kernels whose compiler was killed or crashed
_log = logging.getLogger(__name__)
_failed: dict[str, str] = {}  # errors of the kernels that this process could not compile, by code


def build(codes: Sequence[str], target: str) -> list[str]:
    """Compile kernels into Warp's cache, as many at a time as this process's share of the processors.

    Args:
        codes: as ``warp_kernel.make_kernel`` takes them; ``target``: as ``warp_kernel.target`` gives it.

    Returns:
        For each kernel, the error if it was not compiled, else an empty text.
    """
    waiting = [code for code in dict.fromkeys(codes) if code not in _failed]
    if waiting:
        # the longest kernels come first: a long one at the end would keep a single process busy
        _Build(deque(sorted(waiting, key=len, reverse=True)), target).run()
    return [_failed.get(code, "") for code in codes]


@dataclass
class _Worker:
    """A worker process and the kernel it is compiling."""

    process: subprocess.Popen
    code: str | None = None
    seconds_before: float = 0.0  # processor time of the process before this kernel
    deadline: float = 0.0  # time of the monotonic clock

    def seconds_used(self) -> float:
        """Return the processor time spent on this kernel."""
        with contextlib.suppress(psutil.Error):
            return self.total_seconds() - self.seconds_before
        return 0.0

    def total_seconds(self) -> float:
        """Return the processor time of the process."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system


class _Build:
    """The compilation of many kernels by worker processes."""

    def __init__(self, waiting: deque[str], target: str) -> None:
        self._waiting, self._target, self._total = waiting, target, len(waiting)
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._began = time.monotonic()
        self._next_report = self._began + REPORT_AFTER

    def run(self) -> None:
        """Compile all kernels; Ctrl-C stops at once."""
        try:
            # start all processes first: sending a kernel, which is longer than a pipe's buffer, waits for its process
            for _ in range(min(len(self._waiting), own_cpus())):
                self._start_worker()
            while self._waiting or any(worker.code is not None for worker in self._workers):
                self._assign()
                for key, _ in self._selector.select(timeout=0.1):
                    self._read_answer(key.data)
                for worker in [each for each in self._workers if each.code is not None]:
                    self._kill_if_late(worker)
                self._report_progress()
        finally:
            for worker in self._workers:
                _kill(worker.process)
            self._selector.close()

    def _assign(self) -> None:
        """Give every idle process a kernel, and start more processes up to the limit."""
        idle = [worker for worker in self._workers if worker.code is None]
        while self._waiting and (idle or len(self._workers) < own_cpus()):
            worker = idle.pop() if idle else self._start_worker()
            code = self._waiting.popleft()
            worker.code, worker.seconds_before = code, worker.total_seconds()
            worker.deadline = time.monotonic() + PATIENCE * _limit(code)
            assert worker.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # a dead process is noticed when its answer is read
                worker.process.stdin.write(json.dumps({"code": code, "target": self._target}).encode() + b"\n")
                worker.process.stdin.flush()

    def _start_worker(self) -> _Worker:
        process = start_helper(serve, subprocess.PIPE, subprocess.PIPE)
        worker = _Worker(process)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        self._workers.append(worker)
        return worker

    def _read_answer(self, worker: _Worker) -> None:
        """Read a worker's answer; an empty line means that the process has died."""
        assert worker.process.stdout is not None and worker.code is not None
        line = worker.process.stdout.readline()
        error = json.loads(line)["error"] if line else f"{KILLED}crashes or takes too much memory"
        if error:
            _failed[worker.code] = error
        worker.code = None
        if not line:
            self._remove(worker)

    def _kill_if_late(self, worker: _Worker) -> None:
        """Kill a process that takes too long."""
        assert worker.code is not None
        limit = _limit(worker.code)
        if worker.seconds_used() > limit or time.monotonic() > worker.deadline:
            _failed[worker.code] = f"{KILLED}takes more than {limit:.0f} s of processor time"
            self._remove(worker)

    def _remove(self, worker: _Worker) -> None:
        self._selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        _kill(worker.process)
        self._workers.remove(worker)

    def _report_progress(self) -> None:
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + REPORT_EVERY
            left = len(self._waiting) + sum(worker.code is not None for worker in self._workers)
            done = f"{self._total - left} of {self._total} kernels done"
            _log.warning("compiling candidate functions for %.0f s: %s", now - self._began, done)


def _limit(code: str) -> float:
    """Return the seconds of processor time that a kernel may take."""
    return LIMIT + LIMIT_PER_LINE * code.count("\n")


def _kill(process: subprocess.Popen) -> None:
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
    end_with_parent()
    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # compilers print to standard output
    from envcoder_bench.compile import warp_kernel

    for line in sys.stdin:
        request, message = json.loads(line), ""
        try:
            warp_kernel.build(request["code"], request["target"])
        except Exception as error:
            message = message_line(error)
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"error": message[:500]}), file=answers, flush=True)
