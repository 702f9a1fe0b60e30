"""Test which restrictions are in force on this machine, by a process that tries to violate them."""

import functools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import note
from envcoder_bench.jail import confine
from envcoder_bench.jail.confine import SYSTEM_CALLS, WITH_ARGUMENT, Limits

log = logging.getLogger(__name__)

# restrictions that are necessary to run untrusted files
REQUIRED = (
    "opening files", "creating files", "sockets", "new processes", "other programs", "signals to other processes",
    "looking into other processes", "executable memory", "new descriptors", "kernel interfaces",
    "unusual arguments of system calls", "much memory",
)  # fmt: skip


@functools.cache
def log_confinement() -> None:
    """Log once per process that code is confined, with all restrictions in run.log. Raises as ``confinement``."""
    restrictions = confinement()
    names = ", ".join(line.partition(":")[0] for line in restrictions[:3])
    log.info("untrusted candidates are confined by %s: docs/jail.md", names)
    note("\n  ".join(["the confinement:", *restrictions]))


def confinement() -> list[str]:
    """Return one line of text for each restriction in force.

    Raises:
        UserError: if this machine cannot confine untrusted code; the message says what is missing.
    """
    reason = confine.supported()
    if reason:
        raise UserError(f"untrusted code cannot be confined here: {reason}")
    refused = _probe()
    missing = [name for name in REQUIRED if not refused.get(name)]
    if missing:
        reason = refused.get("error") or f"the kernel allowed: {', '.join(missing)}"
        raise UserError(f"untrusted code cannot be confined here: {reason}; is seccomp disabled?")
    # tested restrictions, and those that the kernel enforces without a test
    limits, landlock = Limits(), refused["landlock"]
    return [
        f"seccomp: {len(SYSTEM_CALLS) + len(WITH_ARGUMENT)} system calls and memory that is not executable; tested and"
        " refused: " + ", ".join(REQUIRED[:-1]),
        f"Landlock (ABI {landlock}): no file can be opened (tested separately)"
        if landlock and refused.get("landlock alone")
        else "Landlock: not available here; seccomp alone protects files",
        f"limits: {limits.memory >> 30} GiB of memory, {limits.cpu} s of processor time, {limits.idle:g} s of waiting,"
        f" {limits.wall:g} s in all and {limits.spare:g} s more for all files together; no files, descriptors,"
        " processes or core dumps",
        "no new privileges, no capabilities, no debugger; a fresh environment without keys, its own session, killed"
        " with its parent",
    ]


def import_path() -> list[str]:
    """Return the import path of a confined process: this package's folder, then the absolute path of this process."""
    root = Path(__file__).resolve().parent.parent.parent
    return [str(root), *(str(Path(entry).resolve()) for entry in sys.path if entry and Path(entry).exists())]


@functools.cache
def _probe() -> dict[str, object]:
    """Run ``_report`` in a new process; return whether each attempt was refused, by name."""
    boot = f"import sys; sys.path[:] = {import_path()!r}; from envcoder_bench.jail.probing import _report; _report()"
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
        return {"error": f"the test failed: {type(error).__name__}"}


def _report() -> None:
    """Print the results of two processes: one with Landlock only, one confined as untrusted code is."""
    refused: dict[str, object] = _in_fork(_try_landlock)
    refused.update(_in_fork(_try_all))
    print(json.dumps(refused))


def _in_fork(attempt: Callable[[int], dict[str, object]]) -> dict[str, object]:
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_fd)
            os.write(write_fd, json.dumps(attempt(write_fd)).encode())
        except BaseException as error:
            os.write(write_fd, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        finally:
            os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as file:
        result = file.read()
    os.waitpid(pid, 0)
    return json.loads(result) if result else {"error": "the process that tests the confinement died"}


def _try_landlock(_: int) -> dict[str, object]:
    confine.drop_privileges()
    version = confine.landlock()
    return {"landlock": version, "landlock alone": version > 0 and _refused(lambda: os.open("/", os.O_RDONLY))}


def _try_all(write_fd: int) -> dict[str, object]:
    limits = Limits(memory=256 << 20, cpu=20)
    parent, page = os.getppid(), 4096
    confine.confine(limits, (write_fd,))
    libc = confine.libc()

    def call(number: int, *arguments: int) -> Callable[[], None]:
        return lambda: confine.check_result(libc.syscall(number, *arguments, 0, 0, 0, 0), "")

    # numbers on x86-64 and ARM64; newer calls have the same number on both
    machine = 0 if confine.MACHINE == "x86_64" else 1
    numbers: dict[str, tuple[int, int]] = {
        "socket": (41, 198), "ptrace": (101, 117), "process_vm_readv": (310, 270), "mmap": (9, 222), "dup": (32, 23),
        "unshare": (272, 97), "mount": (165, 40), "bpf": (321, 280), "prctl": (157, 167), "memfd_create": (319, 279),
        "io_uring_setup": (425, 425), "pidfd_open": (434, 434), "clone3": (435, 435), "ioctl": (16, 29),
        "setrlimit": (160, 164), "personality": (135, 92), "keyctl": (250, 219), "perf_event_open": (298, 241),
    }  # fmt: skip
    refused = {name: _refused(call(pair[machine], 0, 0)) for name, pair in numbers.items()}
    # the restricted argument gets a forbidden value, the others 0
    unusual = {"madvise": 12, "futex": 128 | 3, "sched_getaffinity": parent, "clock_gettime": -6, "clock_getres": -6}
    arguments = [
        _refused(call(numbers_of[machine], *([0] * argument), unusual[name]))
        for name, (numbers_of, argument, _) in WITH_ARGUMENT.items()
    ]
    kernel = ("unshare", "mount", "bpf", "prctl", "io_uring_setup", "ioctl", "setrlimit", "personality", "keyctl")
    return {
        "opening files": _refused(lambda: os.open("/", os.O_RDONLY)),
        "creating files": _refused(lambda: os.open("/tmp/envcoder_bench_probe", os.O_CREAT | os.O_WRONLY)),
        "sockets": refused["socket"],
        "new processes": _refused(_fork) and refused["clone3"],
        "other programs": _refused(lambda: os.execv("/nonexistent", ["x"])),
        "signals to other processes": _refused(lambda: os.kill(parent, 0)) and refused["pidfd_open"],
        "looking into other processes": refused["ptrace"] and refused["process_vm_readv"],
        "executable memory": _refused(call(numbers["mmap"][machine], 0, page, 7)),
        "new descriptors": refused["dup"] and refused["memfd_create"] and refused["perf_event_open"],
        "kernel interfaces": all(refused[name] for name in kernel),
        "unusual arguments of system calls": all(arguments),
        "much memory": _no_memory(limits.memory),
    }


def _refused(attempt: Callable[[], object]) -> bool:
    """Return whether the kernel denies permission, instead of failing for another reason."""
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
