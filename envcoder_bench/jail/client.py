"""The trainer's side of the jail: it hands texts over, watches the clock, and takes plain data back."""

from __future__ import annotations

import array
import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, Union

import torch
from torch import Tensor

from envcoder_bench.core.cpus import usable_cpus
from envcoder_bench.core.errors import UserError
from envcoder_bench.jail import wire
from envcoder_bench.jail.confine import Limits
from envcoder_bench.jail.rebuild import clean
from envcoder_bench.tasks.contract import AnyTask, contract_of
from envcoder_bench.tasks.registry import outside_tasks

START_LIMIT = 300.0  # seconds until the jail's own process is ready, on a slow disk
# what the process finds in its environment: nothing of the user's but where libraries lie
_PASSED_ON = ("LD_LIBRARY_PATH", "SYSTEMROOT")
_ENVIRONMENT = {
    "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1", "HOME": "/nonexistent", "TMPDIR": "/nonexistent",
}  # fmt: skip
_BOOT = "import sys; sys.path[:] = {path!r}; from envcoder_bench.jail.child import main; main({fd})"


class Failure(NamedTuple):
    """Why there is no answer."""

    reason: str


Answer = Union[bytes, Failure]


@dataclass
class _Job:
    """One file on its way through the jail, until a time of the monotonic clock."""

    number: int
    until: float
    content: list[bytes] = field(default_factory=list)
    length: int = 0
    open: bool = True
    status: int | None = None  # as of waitpid, once the process has ended
    cpu: float = 0.0  # seconds of processor time that it took
    reason: str = ""  # why it was killed

    @property
    def over(self) -> bool:
        return not self.open and self.status is not None


class JailClient:
    """A process that has torch and a sample of a task's state loaded, and forks a confined one for every file.

    A context manager: its processes end with it.

    Args:
        task: the candidates' task; ``state``: a real state, ``(n, ...)`` tensors.
        baseline: the text of the file that fills in for absent functions.
        shaper_types: which functions come from the candidates; None: all that they define.
        seed: what modules are loaded with.
        scan: check syntax trees first. False is for trying the process's walls.
        sizes: environments of a group, in training and in evaluations; default: those of ``state``.
        parallel: how many files at a time; default: one for each processor.

    Raises:
        UserError: the process cannot be started.
    """

    def __init__(
        self,
        task: AnyTask,
        state: Mapping[str, Tensor],
        baseline: str,
        shaper_types: Sequence[str] | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        scan: bool = True,
        sizes: Sequence[int] = (),
        parallel: int | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._parallel = parallel or usable_cpus()
        self._numbers = 0
        header = {
            "task": contract_of(task).to_plain(),
            "folders": {name: str(spec.folder) for name, spec in outside_tasks().items()},
            "baseline": baseline,
            "shaper_types": None if shaper_types is None else list(shaper_types),
            "seed": seed,
            "sizes": list(sizes) or [next(iter(state.values())).shape[0]],
            "limits": self.limits._asdict(),
            "scan": scan,
        }
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = own
        try:
            with theirs:
                self._process = _start(theirs.fileno(), _setup(header, state, task.constants))
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> JailClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all its processes: without the first, the kernel kills those that it forked."""
        self._control.close()
        process: subprocess.Popen | None = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()

    def answers(self, sources: Sequence[str]) -> Iterator[tuple[int, Answer]]:
        """What the jail answers to each text, as it comes, with the text's place; ``rebuild`` tells what it is worth.

        No more than the answers to the files that are in the jail at one time are kept here.
        """
        places: dict[int, int] = {}
        jobs: dict[int, _Job] = {}
        waiting: deque[int] = deque(range(len(sources)))
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            while waiting or jobs:
                while waiting and len(jobs) < self._parallel:
                    place = waiting.popleft()
                    fd, job = self._hand_over(sources[place])
                    places[job.number], jobs[job.number] = place, job
                    selector.register(fd, selectors.EVENT_READ, job)
                for key, _ in selector.select(timeout=0.2):
                    if key.data is None:
                        self._note_end(jobs)
                    elif not _take(key.fd, key.data):
                        selector.unregister(key.fd)
                        os.close(key.fd)
                for job in list(jobs.values()):
                    self._watch(job)
                over = [job for job in jobs.values() if job.over]
                for job in over:
                    del jobs[job.number]
                    began = time.monotonic()
                    yield places.pop(job.number), _answer(job, self.limits)
                    for other in jobs.values():  # nobody has looked at them meanwhile
                        other.until += time.monotonic() - began

    def _wait_until_ready(self) -> None:
        assert self._process.stderr is not None
        self._control.settimeout(START_LIMIT)
        try:
            said = self._control.recv(4096)
        except OSError:
            said = b""
        if said != b'{"ready": true}':
            self._process.kill()
            told = self._process.stderr.read().decode("utf-8", "replace").strip().splitlines() or ["no reason"]
            raise UserError(f"the jail for untrusted code cannot be started: {clean(told[-1])}")
        self._process.stderr.close()

    def _hand_over(self, source: str) -> tuple[int, _Job]:
        """Have a process forked for a text; returns the descriptor of its answer."""
        self._numbers += 1
        given, gives = os.pipe()
        answer, answers = os.pipe()
        order = json.dumps({"run": self._numbers}).encode()
        fds = array.array("i", [given, answers])
        try:
            self._control.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        finally:
            os.close(given)
            os.close(answers)
        with contextlib.suppress(BrokenPipeError):  # the process has died: its end will be told
            try:
                wire.write_all(gives, source.encode("utf-8", "surrogateescape"))
            finally:
                os.close(gives)
        return answer, _Job(self._numbers, time.monotonic() + self.limits.wall)

    def _note_end(self, jobs: dict[int, _Job]) -> None:
        said = self._control.recv(4096)
        if not said:
            raise UserError("the jail for untrusted code ended unexpectedly: is there enough memory?")
        told = json.loads(said)
        if told["ended"] in jobs:
            jobs[told["ended"]].status, jobs[told["ended"]].cpu = told["status"], told["cpu"]

    def _watch(self, job: _Job) -> None:
        """Have a process killed that takes too long or says too much."""
        if job.status is None and not job.reason:
            if time.monotonic() > job.until:
                job.reason = f"takes longer than {self.limits.wall:g} s to load, check and trace, waiting included"
            elif job.length > wire.MAX_ANSWER + 4:
                job.reason = f"gives an answer of more than {wire.MAX_ANSWER >> 20} MiB"
            if job.reason:
                self._control.send(json.dumps({"kill": job.number}).encode())


def _take(fd: int, job: _Job) -> bool:
    """Read a part of an answer; False at its end."""
    part = os.read(fd, 1 << 18)
    job.length += len(part)
    if job.length <= wire.MAX_ANSWER + 4:
        job.content.append(part)
    job.open = bool(part)
    return job.open


def _answer(job: _Job, limits: Limits) -> Answer:
    assert job.status is not None
    if job.reason:
        return Failure(job.reason)
    if os.WIFSIGNALED(job.status):
        return Failure(_death(os.WTERMSIG(job.status), job.cpu, limits))
    if os.WEXITSTATUS(job.status) != 0 or not job.length:
        return Failure("ended the process that it was checked in")
    return b"".join(job.content)


def _death(number: int, cpu: float, limits: Limits) -> str:
    if number in (signal.SIGKILL, signal.SIGXCPU):
        if number == signal.SIGXCPU or cpu > 0.9 * limits.cpu:  # the kernel counts a little otherwise than it tells
            return f"takes more than {limits.cpu} s of processor time to load, check and trace: does a loop not end?"
        return "was killed while it was loaded, checked and traced, most likely for want of memory"
    known = {one.value: one.name for one in signal.Signals}
    return f"crashed the process that it was checked in ({known.get(number, f'signal {number}')})"


def _start(control: int, setup: bytes) -> subprocess.Popen:
    path = [str(Path(__file__).resolve().parent.parent.parent)]
    path += [str(Path(entry).resolve()) for entry in sys.path if entry and Path(entry).exists()]
    environment = {**_ENVIRONMENT, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}}
    process = subprocess.Popen(
        # isolated, and without site: neither the user's modules nor what .pth files run
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT.format(path=path, fd=control)],
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


def _setup(header: dict[str, Any], state: Mapping[str, Tensor], constants: Mapping[str, Tensor]) -> bytes:
    """A header and the tensors' bytes, see ``child._examiner``."""
    blobs: list[bytes] = []
    for kind, tensors in (("state", state), ("constants", constants)):
        header[kind] = [[name, str(x.dtype).split(".")[1], list(x.shape)] for name, x in tensors.items()]
        blobs += [_bytes_of(x) for x in tensors.values()]
    text = json.dumps(header).encode()
    return struct.pack("!Q", len(text)) + text + b"".join(blobs)


def _bytes_of(x: Tensor) -> bytes:
    return x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if x.numel() else b""
