"""The trainer's side of the jail: submit sources, enforce limits, and turn answers into candidates with programs."""

from __future__ import annotations

import array
import contextlib
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from envcoder_bench.compile.cache import code_digest, read_packed, write_packed
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import digest
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.jail import wire
from envcoder_bench.jail.confine import Limits
from envcoder_bench.jail.probing import import_path
from envcoder_bench.jail.rebuild import Contract, clean, rebuild
from envcoder_bench.jail.wire import MAX_CHARACTERS
from envcoder_bench.shaping.contract import Candidate, CandidateError, Fault
from envcoder_bench.shaping.text import misleading, unreadable
from envcoder_bench.sources.registry import outside_tasks
from envcoder_bench.tasks.contract import AnyTask, contract_of
from mujoco_batches.process import usable_cpus

_SAMPLE = 0.5  # seconds between two readings of a process's clock
_BUSY = 0.01  # least processor time per second of a process that does not wait
START_TIMEOUT = 300.0  # seconds until the jail's server process is ready, on a slow disk
# the environment of the jail's processes; only the search path of libraries is inherited from the user's
_INHERITED = ("LD_LIBRARY_PATH", "SYSTEMROOT")
_ENVIRONMENT = {
    "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1", "HOME": "/nonexistent", "TMPDIR": "/nonexistent",
}  # fmt: skip
_BOOT = "import sys; sys.path[:] = {path!r}; from envcoder_bench.jail.child import main; main({fd})"


class Failure(NamedTuple):
    """The reason why a file has no answer."""

    reason: str


Answer = bytes | Failure


@dataclass
class _Job:
    """The state of one file in the jail; ``deadline`` and ``clock_read_at`` are times of the monotonic clock."""

    number: int
    index: int  # the index of its source
    deadline: float
    chunks: list[bytes] = field(default_factory=list)
    length: int = 0  # bytes of the answer so far
    open: bool = True  # whether the answer may continue
    status: int | None = None  # the status of waitpid, once the process has ended
    cpu: float = 0.0  # seconds of processor time used
    pid: int = 0  # 0 until the process has begun
    clock_read_at: float = 0.0  # 0 until the process's clock was read
    waits: float = 0.0  # seconds without processor time
    reason: str = ""  # the reason why it was killed

    @property
    def finished(self) -> bool:
        return not self.open and self.status is not None


class JailClient:
    """A server process with torch and a sample of a task's state, which forks a confined process for every file.

    Use it as a context manager, which ends its processes.

    Args:
        state: a real state of the task, ``(n, ...)`` tensors.
        baseline: source of the baseline that fills in missing functions.
        shaper_types: functions to take from the candidates; None for all that they define.
        seed: seed with which modules are loaded.
        sizes: environments per group in training and in evaluations; by default those of ``state``.
        reads_dicts: whether the task takes dicts such as ``rewards``.
        parallel: number of files at a time; by default one per processor.

    Raises:
        UserError: if the process cannot be started.
    """

    def __init__(
        self,
        task: AnyTask,
        state: Mapping[str, Tensor],
        baseline: str,
        shaper_types: Sequence[str] | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        sizes: Sequence[int] = (),
        reads_dicts: bool = False,
        parallel: int | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._parallel = parallel or usable_cpus()
        self._submitted = 0
        # everything that the examiner needs besides the candidates, which follow one by one
        header = {
            "task": contract_of(task).to_plain(),
            "folders": {name: str(spec.folder) for name, spec in outside_tasks().items()},
            "baseline": baseline,
            "shaper_types": None if shaper_types is None else list(shaper_types),
            "seed": seed,
            "sizes": list(sizes) or [next(iter(state.values())).shape[0]],
            "reads_dicts": reads_dicts,
            "limits": self.limits._asdict(),
            "state": _copies(state),
            "constants": _copies(task.constants),
        }
        setup = io.BytesIO()
        torch.save(header, setup)
        # a socket with message boundaries: a candidate's answer cannot run into the next one
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        try:
            with theirs:
                self._process = _start(theirs.fileno(), setup.getvalue())
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> JailClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server process; the kernel then kills the processes that it forked."""
        self._control.close()
        process: subprocess.Popen | None = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()

    def answers(self, sources: Sequence[str]) -> Iterator[tuple[int, Answer]]:
        """Yield (index of the source, unchecked answer) as answers arrive.

        Only the answers of the files that are in the jail at the same time are held in memory.
        """
        jobs: dict[int, _Job] = {}
        self._spare = self.limits.spare
        waiting: deque[int] = deque(range(len(sources)))
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            while waiting or jobs:
                # keep ``parallel`` files in the jail
                while waiting and len(jobs) < self._parallel:
                    index = waiting.popleft()
                    fd, job = self._submit(index, sources[index])
                    jobs[job.number] = job
                    selector.register(fd, selectors.EVENT_READ, job)
                # read from the server and from the files' processes
                for key, _ in selector.select(timeout=0.2):
                    if key.data is None:
                        self._receive(jobs)
                    elif not _read(key.fd, key.data):
                        selector.unregister(key.fd)
                        os.close(key.fd)
                # the server kills a process over a limit, and reports its end as any other
                for job in list(jobs.values()):
                    self._enforce_limits(job)
                finished = [job for job in jobs.values() if job.finished]
                for job in finished:
                    del jobs[job.number]
                    began = time.monotonic()
                    yield job.index, _answer(job, self.limits)
                    for other in jobs.values():  # the caller's time does not count
                        other.deadline += time.monotonic() - began

    def _wait_until_ready(self) -> None:
        assert self._process.stderr is not None
        self._control.settimeout(START_TIMEOUT)
        try:
            message = self._control.recv(4096)
        except OSError:
            message = b""
        if message != b'{"ready": true}':
            self._process.kill()
            lines = self._process.stderr.read().decode("utf-8", "replace").strip().splitlines() or ["no reason"]
            raise UserError(f"the jail for untrusted code cannot be started: {clean(lines[-1])}")
        self._process.stderr.close()

    def _submit(self, index: int, source: str) -> tuple[int, _Job]:
        """Request a process for a source; return the descriptor of its answer and the job."""
        self._submitted += 1
        source_read, source_write = os.pipe()
        answer_read, answer_write = os.pipe()
        request = json.dumps({"run": self._submitted}).encode()
        fds = array.array("i", [source_read, answer_write])
        try:
            self._control.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        finally:
            os.close(source_read)
            os.close(answer_write)
        with contextlib.suppress(BrokenPipeError):  # the process has died; its exit will be reported
            try:
                wire.write_all(source_write, source.encode("utf-8", "surrogateescape"))
            finally:
                os.close(source_write)
        return answer_read, _Job(self._submitted, index, time.monotonic() + self.limits.wall)

    def _receive(self, jobs: dict[int, _Job]) -> None:
        message = self._control.recv(4096)
        if not message:
            raise UserError("the jail for untrusted code ended unexpectedly: is there enough memory?")
        report = json.loads(message)
        job = jobs.get(report.get("ended") or report["began"])
        if job is not None and "began" in report:
            job.pid = report["pid"]
        elif job is not None:
            job.status, job.cpu = report["status"], report["cpu"]

    def _enforce_limits(self, job: _Job) -> None:
        """Ask the server to kill a process that takes too long, waits or writes too much."""
        if job.status is None and not job.reason:
            now = time.monotonic()
            if job.pid and job.open and now > job.clock_read_at + _SAMPLE:
                _read_clock(job, now)
            late, job.deadline = max(now - job.deadline, 0.0), max(now, job.deadline)
            self._spare -= late  # time beyond the deadline counts for all files together
            if late and self._spare < 0:
                job.reason = f"takes longer than {self.limits.wall:g} s to load, check and trace, waiting included"
            elif job.waits > self.limits.idle:
                job.reason = f"waits: it used no processor time for {self.limits.idle:g} s"
            elif job.length > wire.MAX_ANSWER + 4:
                job.reason = f"returns an answer of more than {wire.MAX_ANSWER >> 20} MiB"
            if job.reason:
                self._control.send(json.dumps({"kill": job.number}).encode())


def _read_clock(job: _Job, now: float) -> None:
    """Update the time that a process has waited; a reading adds little even after a long pause of the machine."""
    try:
        cpu = time.clock_gettime(~job.pid << 3 | 2)  # Linux' number of the clock of another process
    except OSError:  # it has ended
        return
    since = now - job.clock_read_at
    if job.clock_read_at and cpu - job.cpu < _BUSY * since:
        job.waits += min(since, 2 * _SAMPLE)
    else:
        job.waits = 0.0
    job.cpu, job.clock_read_at = cpu, now


def _read(fd: int, job: _Job) -> bool:
    """Read a part of an answer; return False at its end."""
    chunk = os.read(fd, 1 << 18)
    job.length += len(chunk)
    if job.length <= wire.MAX_ANSWER + 4:
        job.chunks.append(chunk)
    job.open, job.waits = bool(chunk), 0.0
    return job.open


def _answer(job: _Job, limits: Limits) -> Answer:
    assert job.status is not None
    if job.reason:
        return Failure(job.reason)
    if os.WIFSIGNALED(job.status):
        return Failure(_signal_reason(os.WTERMSIG(job.status), job.cpu, limits))
    if os.WEXITSTATUS(job.status) != 0 or not job.length:
        return Failure("ended the process that it was checked in")
    return b"".join(job.chunks)


def _signal_reason(number: int, cpu: float, limits: Limits) -> str:
    if number in (signal.SIGKILL, signal.SIGXCPU):
        if number == signal.SIGXCPU or cpu > 0.9 * limits.cpu:  # the reported time differs slightly from the limit's
            return f"takes more than {limits.cpu} s of processor time to load, check and trace: does a loop not end?"
        return "was killed while it was loaded, checked and traced, probably because memory ran out"
    names = {member.value: member.name for member in signal.Signals}
    return f"crashed the process that it was checked in ({names.get(number, f'signal {number}')})"


def _start(control: int, setup: bytes) -> subprocess.Popen:
    environment = {**_ENVIRONMENT, **{name: os.environ[name] for name in _INHERITED if name in os.environ}}
    process = subprocess.Popen(
        # isolated and without site: neither the user's modules nor .pth files run
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT.format(path=import_path(), fd=control)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        pass_fds=(control,),
        cwd="/",
        start_new_session=True,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(setup)
    return process


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies on the CPU; a view would be saved with all of its storage."""
    return {name: x.detach().cpu().clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}


# candidates from the answers

JailResult = Candidate | Fault
Source = tuple[str, str, str]  # name, file (for messages) and text


def examine(
    sources: Sequence[Source],
    task: AnyTask,
    state: Mapping[str, Tensor],
    baseline: str,
    action_dim: int,
    shaper_types: Sequence[str] | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    sizes: Sequence[int] = (),
    reads_dicts: bool = False,
) -> dict[str, JailResult]:
    """Load, check and trace files in the jail.

    Answers that describe candidates are cached on disk by content, and validated again whenever they are used.

    Args:
        state: a real state of the task, ``(n, ...)`` tensors, as functions see it.
        baseline: source of the baseline that fills in missing functions.
        action_dim: width of the baseline's action.
        shaper_types, seed, limits, sizes, reads_dicts: see ``JailClient``.

    Returns:
        Candidates by name, with programs as functions and dicts as data; faults for the others.

    Raises:
        UserError: if the jail cannot be started.
    """
    # everything that an answer depends on, except the candidate
    contract = Contract.of(task, state, action_dim, shaper_types, reads_dicts)
    arguments = (baseline, shaper_types, seed, limits, list(sizes), reads_dicts)
    context = repr((code_digest(), torch.__version__, _task_key(task, state), arguments))
    results: dict[str, JailResult] = {}
    uncached: list[Source] = []
    for name, file, source in sources:
        fault = _fault_of_text(file, source)
        if fault is not None:
            results[name] = fault
            continue
        try:
            answer = read_packed(_path(context, source), wire.MAX_ANSWER + 5)
            results[name] = rebuild(answer, name, file, source, contract)
        except CandidateError:  # missing or damaged
            uncached.append((name, file, source))
    # one server process for all others; faults of the jail are not cached
    if uncached:
        with JailClient(task, state, baseline, shaper_types, seed, limits, sizes, reads_dicts) as jail:
            for index, answer in jail.answers([source for _, _, source in uncached]):
                name, file, source = uncached[index]
                results[name] = _result(answer, name, file, source, contract)
                if isinstance(answer, bytes) and isinstance(results[name], Candidate):
                    write_packed(_path(context, source), answer)
    return {name: results[name] for name, _, _ in sources}


def _fault_of_text(file: str, source: str) -> Fault | None:
    if len(source) > MAX_CHARACTERS:
        return Fault(f"has more than {MAX_CHARACTERS} characters", file)
    fault = unreadable(source) or misleading(source)
    return None if fault is None else replace(fault, file=file)


def _result(answer: Answer, name: str, file: str, source: str, contract: Contract) -> JailResult:
    if isinstance(answer, Failure):
        return Fault(answer.reason, file, kind="crashed")
    try:
        return rebuild(answer, name, file, source, contract)
    except CandidateError as error:
        return error.fault


def _task_key(task: AnyTask, state: Mapping[str, Tensor]) -> object:
    """Return the task's part of the cache key, without the state's values: the trainer checks again on them."""
    properties = (task.num_dofs, task.default_action_dim, task.goal_keys, task.object_keys)
    shapes = sorted((key, tuple(x.shape), str(x.dtype)) for key, x in state.items())
    return properties, shapes, sorted((key, str(x.dtype), x.tolist()) for key, x in task.constants.items())


def _path(context: str, source: str) -> Path:
    return cache_folder() / "jail" / f"{digest(repr((context, source)))}.z"
