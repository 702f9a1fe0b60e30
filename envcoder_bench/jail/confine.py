"""Confine the current process irrevocably, on Linux on x86-64 and ARM64.

This module imports nothing large, so that a process that only tests the confinement starts quickly.
"""

import ctypes
import errno
import os
import signal
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

if sys.platform != "win32":
    import resource

# allowed system calls: memory, clocks, open pipes, exit. Numbers on x86-64 and on ARM64, from Linux'
# arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
SYSTEM_CALLS: dict[str, tuple[int, int]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57),
    "munmap": (11, 215), "mremap": (25, 216), "brk": (12, 214), "sched_yield": (24, 124), "getcpu": (309, 168),
    "getrandom": (318, 278), "gettimeofday": (96, 169),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132), "restart_syscall": (219, 128),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
# allowed unless they make memory executable
NOT_EXECUTABLE: dict[str, tuple[int, int]] = {"mmap": (9, 222), "mprotect": (10, 226)}
_PRIVATE, _REALTIME = 128, 256  # flags of futex operations: process-private; wall clock
# allowed for some values of one argument: the call's numbers, the argument's index, the values
WITH_ARGUMENT: dict[str, tuple[tuple[int, int], int, Sequence[int]]] = {
    # normal, random, sequential, will need, don't need, free, (no) huge pages, no dump. The others share pages with
    # other processes, or reveal their contents by timing
    "madvise": ((28, 233), 2, (0, 1, 2, 3, 4, 8, 14, 15, 16)),
    # wait and wake within this process; requeueing, priorities and shared futexes have had kernel bugs
    "futex": ((202, 98), 1, tuple(op | _PRIVATE | when for op in (0, 1, 9, 10) for when in (0, _REALTIME))),
    "sched_getaffinity": ((204, 123), 0, (0,)),  # this process only
    # the clocks of the machine, this process and thread; negative numbers are clocks of other processes
    "clock_gettime": ((228, 113), 0, tuple(range(12))),
    "clock_getres": ((229, 114), 0, tuple(range(12))),
}
MACHINE = os.uname().machine if hasattr(os, "uname") else ""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # index in the pairs above, AUDIT_ARCH

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_PROT_EXEC = 4

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_FILE_RIGHTS = (0, 13, 14, 15, 15, 16)  # number of access rights on files, by ABI version
_CAPABILITY_VERSION = 0x20080522


class Limits(NamedTuple):
    """Limits of a confined process.

    Attributes:
        memory: bytes in addition to those in use when the process is confined.
        cpu: seconds of processor time.
        wall: seconds of wall-clock time; the client enforces this limit and the next two.
        spare: seconds that all files together may take beyond ``wall``.
        idle: seconds without processor time.
    """

    memory: int = 2 << 30
    cpu: int = 10
    wall: float = 20.0
    spare: float = 40.0
    idle: float = 3.0


def supported() -> str:
    """Return why this platform is not supported; an empty string if it is supported."""
    if not sys.platform.startswith("linux"):
        return f"it needs Linux, not {sys.platform}"
    if MACHINE not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return f"it needs 64-bit Python on x86-64 or ARM64, not {MACHINE}"
    return ""


def confine(limits: Limits, keep: Sequence[int]) -> None:
    """Confine this process, which must have a single thread.

    Args:
        limits: memory and processor time.
        keep: file descriptors that stay open; the standard three are redirected to /dev/null.

    Raises:
        OSError: if a required restriction is not available.
    """
    close_all_but(keep)
    memory = address_space() + limits.memory
    drop_privileges()
    landlock()
    limit_resources(memory, limits.cpu)  # after landlock, because it forbids new descriptors
    seccomp()


def close_all_but(keep: Sequence[int]) -> None:
    """Close all other file descriptors; redirect standard input, output and error to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    first = 3
    end = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    for fd in sorted({*keep, end}):
        os.closerange(first, fd)
        first = fd + 1


def address_space() -> int:
    """Return the bytes of address space in use."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def limit_resources(memory: int, cpu: int) -> None:
    """Limit memory (bytes) and processor time (s); forbid growing files, new descriptors, processes and core dumps."""
    forbidden = ("FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE")
    for name, soft in (("AS", memory), ("CPU", cpu), *((name, 0) for name in forbidden)):
        kind = getattr(resource, f"RLIMIT_{name}")
        old_hard = resource.getrlimit(kind)[1]
        unlimited = old_hard == resource.RLIM_INFINITY
        soft = soft if unlimited else min(soft, old_hard)
        # the soft limit of CPU time sends SIGXCPU, which tells the reason; a second later the kernel kills the process
        hard = soft + 1 if name == "CPU" and (unlimited or soft < old_hard) else soft
        resource.setrlimit(kind, (soft, hard))


def drop_privileges() -> None:
    """Drop all capabilities for good, forbid debuggers, and die with the parent process."""
    c = libc()
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    check_result(c.capset(header, bytes(24)), "capset")
    left = ctypes.create_string_buffer(24)
    check_result(c.capget(header, left), "capget")
    if any(left.raw):  # some sandboxes ignore the call
        raise OSError(errno.EPERM, "capset had no effect")
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, int(signal.SIGKILL))):
        check_result(c.prctl(option, value, 0, 0, 0), "prctl")


def landlock() -> int:
    """Deny access to all files, and on newer kernels to TCP ports and to signals of other processes.

    Returns the version of the kernel's Landlock ABI; 0 without Landlock, so that seccomp is the only restriction.
    """
    c = libc()
    version = c.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return 0
    # restrict all rights that this kernel knows; without rules, none is granted
    files = (1 << _LANDLOCK_FILE_RIGHTS[min(version, len(_LANDLOCK_FILE_RIGHTS) - 1)]) - 1
    rights = struct.pack("QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = c.syscall(_LANDLOCK_CREATE, rights, ctypes.c_size_t(size), 0)
    check_result(ruleset, "landlock_create_ruleset")
    try:
        check_result(c.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def seccomp() -> None:
    """Allow SYSTEM_CALLS, and NOT_EXECUTABLE and WITH_ARGUMENT conditionally; all others fail with EPERM."""
    code = b"".join(struct.pack("HBBI", *step) for step in _filter())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    check_result(libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")


def _filter() -> list[tuple[int, int, int, int]]:
    """Return the filter as instructions of classic BPF: (code, jump if true, jump if false, number).

    It reads ``struct seccomp_data``: the call's number at offset 0, the architecture at 4, and the arguments from 16
    on, 8 bytes each, little-endian. The compared arguments are ints, of which the kernel uses the lower half.
    """
    machine, architecture = _ARCHITECTURES[MACHINE]
    refuse, allow, kill = (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL)
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), kill, (_LOAD, 0, 0, 0)]
    if MACHINE == "x86_64":
        steps += [(_AT_LEAST, 0, 1, 0x40000000), kill]  # the x32 ABI, whose calls have other numbers
    for number in SYSTEM_CALLS.values():
        steps += [(_EQUAL, 0, 1, number[machine]), allow]
    for number in NOT_EXECUTABLE.values():
        steps += [(_EQUAL, 0, 4, number[machine]), (_LOAD, 0, 0, 32), (_ANY_BIT, 0, 1, _PROT_EXEC), refuse, allow]
    for numbers, argument, values in WITH_ARGUMENT.values():
        compare = [(_EQUAL, len(values) - 1 - i, 0, value) for i, value in enumerate(values)]
        compare[-1] = (_EQUAL, 0, 1, values[-1])
        steps += [(_EQUAL, 0, len(values) + 3, numbers[machine]), (_LOAD, 0, 0, 16 + 8 * argument), *compare]
        steps += [allow, refuse]
    return [*steps, refuse]


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def check_result(result: int, call: str) -> None:
    """Raise OSError with the current errno if a C function returned a negative number."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
