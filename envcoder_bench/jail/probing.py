"""Which walls stand on this machine: tried out by a process that runs against them, not assumed."""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable

from envcoder_bench.core.errors import UserError
from envcoder_bench.jail import confine
from envcoder_bench.jail.confine import SYSTEM_CALLS, WITH_ARGUMENT, Limits

log = logging.getLogger(__name__)

# without one of these no untrusted file is run
NEEDED = (
    "opening files", "creating files", "sockets", "new processes", "other programs", "signals to other processes",
    "looking into other processes", "executable memory", "new descriptors", "kernel interfaces",
    "unusual arguments of system calls", "much memory",
)  # fmt: skip


@functools.lru_cache(maxsize=None)
def announce() -> None:
    """Say what is in force, once in a process. Raises UserError as ``confinement``."""
    log.info("\n  ".join(["untrusted candidates are confined by", *confinement()]))


def confinement() -> list[str]:
    """Say what is in force here, a line for each wall, for the user to read.

    Raises:
        UserError: this machine cannot confine untrusted code; the message says what is missing.
    """
    reason = confine.supported()
    if reason:
        raise UserError(f"untrusted code cannot be confined here: {reason}")
    found = _probe()
    missing = [name for name in NEEDED if not found.get(name)]
    if missing:
        why = found.get("error") or f"the kernel let through: {', '.join(missing)}"
        raise UserError(f"untrusted code cannot be confined here: {why}; is seccomp switched off?")
    limits, landlock = Limits(), found["landlock"]
    return [
        f"seccomp: {len(SYSTEM_CALLS) + len(WITH_ARGUMENT)} system calls and memory that is not executable; refused"
        " when tried: " + ", ".join(NEEDED[:-1]),
        f"Landlock (ABI {landlock}): no file can be opened, tried on its own"
        if landlock and found.get("landlock alone")
        else "Landlock: not available here, so that seccomp alone keeps files shut",
        f"limits: {limits.memory >> 30} GiB of memory, {limits.cpu} s of processor time, {limits.wall:g} s in all; no"
        " files, descriptors, processes or core dumps",
        "no new privileges, no capabilities, no debugger; an environment without keys, a session of its own, killed"
        " with its parent",
    ]


@functools.lru_cache(maxsize=None)
def _probe() -> dict[str, object]:
    """Run this file as a process that confines itself and tries everything; what it found, by name."""
    root = str(Path(__file__).resolve().parent.parent.parent)
    boot = f"import sys; sys.path.insert(0, {root!r}); from envcoder_bench.jail.probing import _report; _report()"
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", boot],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"error": f"trying it failed: {type(error).__name__}"}


def _report() -> None:
    """Print what two processes find: one with Landlock alone, one confined as untrusted code is."""
    found: dict[str, object] = _in_a_fork(_try_landlock)
    found.update(_in_a_fork(_try_all))
    print(json.dumps(found))


def _in_a_fork(attempt: Callable[[int], dict[str, object]]) -> dict[str, object]:
    reads, writes = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(reads)
            os.write(writes, json.dumps(attempt(writes)).encode())
        except BaseException as error:
            os.write(writes, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        told = file.read()
    os.waitpid(process, 0)
    return json.loads(told) if told else {"error": "a process that tries the walls out died"}


def _try_landlock(_: int) -> dict[str, object]:
    confine.drop_privileges()
    version = confine.landlock()
    return {"landlock": version, "landlock alone": version > 0 and _refused(lambda: os.open("/", os.O_RDONLY))}


def _try_all(answer: int) -> dict[str, object]:
    limits = Limits(memory=256 << 20, cpu=20)
    parent, page = os.getppid(), 4096
    confine.confine(limits, (answer,))
    libc = confine.libc()

    def call(number: int, *arguments: int) -> Callable[[], None]:
        return lambda: confine.checked(libc.syscall(number, *arguments, 0, 0, 0, 0), "")

    # numbers on x86-64 and ARM64; the newer calls have one number everywhere
    place = 0 if confine.MACHINE == "x86_64" else 1
    numbers: dict[str, tuple[int, int]] = {
        "socket": (41, 198), "ptrace": (101, 117), "process_vm_readv": (310, 270), "mmap": (9, 222), "dup": (32, 23),
        "unshare": (272, 97), "mount": (165, 40), "bpf": (321, 280), "prctl": (157, 167), "memfd_create": (319, 279),
        "io_uring_setup": (425, 425), "pidfd_open": (434, 434), "clone3": (435, 435), "ioctl": (16, 29),
        "setrlimit": (160, 164), "personality": (135, 92), "keyctl": (250, 219), "perf_event_open": (298, 241),
    }  # fmt: skip
    tried = {name: _refused(call(pair[place], *([0] * 2))) for name, pair in numbers.items()}
    # the argument in question is tried with a value that must not pass, the rest is 0
    unusual = {"madvise": 12, "futex": 128 | 3, "sched_getaffinity": parent, "clock_gettime": -6, "clock_getres": -6}
    arguments = [
        _refused(call(numbers_of[place], *([0] * argument), unusual[name]))
        for name, (numbers_of, argument, _) in WITH_ARGUMENT.items()
    ]
    kernel = ("unshare", "mount", "bpf", "prctl", "io_uring_setup", "ioctl", "setrlimit", "personality", "keyctl")
    return {
        "opening files": _refused(lambda: os.open("/", os.O_RDONLY)),
        "creating files": _refused(lambda: os.open("/tmp/envcoder_bench_probe", os.O_CREAT | os.O_WRONLY)),
        "sockets": tried["socket"],
        "new processes": _refused(_fork) and tried["clone3"],
        "other programs": _refused(lambda: os.execv("/nonexistent", ["x"])),
        "signals to other processes": _refused(lambda: os.kill(parent, 0)) and tried["pidfd_open"],
        "looking into other processes": tried["ptrace"] and tried["process_vm_readv"],
        "executable memory": _refused(call(numbers["mmap"][place], 0, page, 7)),
        "new descriptors": tried["dup"] and tried["memfd_create"] and tried["perf_event_open"],
        "kernel interfaces": all(tried[name] for name in kernel),
        "unusual arguments of system calls": all(arguments),
        "much memory": _no_memory(limits.memory),
    }


def _refused(attempt: Callable[[], object]) -> bool:
    """Whether the kernel says no, rather than that something is not there or makes no sense."""
    try:
        attempt()
    except OSError as error:
        return error.errno in (1, 13)  # EPERM, EACCES
    return False


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _no_memory(limit: int) -> bool:
    try:
        return not bytearray(limit + (1 << 20))
    except MemoryError:
        return True
