"""Confine this process for good: what Linux offers against code that nobody has read. Linux on x86-64 and ARM64.

Nothing here imports torch or anything large: a process that only tries the walls out starts in no time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
import sys
from typing import NamedTuple, Sequence

if sys.platform != "win32":
    import resource

# what remains after confinement: memory, time, the pipes that are open, and an end. Numbers on x86-64 and on ARM64,
# from Linux' arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
SYSTEM_CALLS: dict[str, tuple[int, int]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57),
    "munmap": (11, 215), "mremap": (25, 216), "brk": (12, 214), "sched_yield": (24, 124), "getcpu": (309, 168),
    "getrandom": (318, 278), "gettimeofday": (96, 169),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132), "restart_syscall": (219, 128),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
# let through unless they make memory executable
NOT_EXECUTABLE: dict[str, tuple[int, int]] = {"mmap": (9, 222), "mprotect": (10, 226)}
_PRIVATE, _REALTIME = 128, 256  # bits of futex' operation: of this process alone; by the wall clock
# let through if one argument is one of some values: the call's numbers, which argument (from 0), which values
WITH_ARGUMENT: dict[str, tuple[tuple[int, int], int, Sequence[int]]] = {
    # normal, random, sequential, will need, don't need, free, huge pages and none, no dump: of this process' own pages.
    # Others share pages with strangers, or tell what they hold by the time they take
    "madvise": ((28, 233), 2, (0, 1, 2, 3, 4, 8, 14, 15, 16)),
    # wait and wake within this process; moving waiters, priorities and words of other processes have had flaws
    "futex": ((202, 98), 1, tuple(op | _PRIVATE | when for op in (0, 1, 9, 10) for when in (0, _REALTIME))),
    "sched_getaffinity": ((204, 123), 0, (0,)),  # of this process, not of others
    # the clocks of the machine, of this process and thread; negative numbers are those of other processes
    "clock_gettime": ((228, 113), 0, tuple(range(12))),
    "clock_getres": ((229, 114), 0, tuple(range(12))),
}
MACHINE = os.uname().machine if hasattr(os, "uname") else ""
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # place in the pairs above, AUDIT_ARCH

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_PROT_EXEC = 4

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_FILE_RIGHTS = (0, 13, 14, 15, 15, 16)  # how many rights there are on files, by ABI
_CAPABILITY_VERSION = 0x20080522


class Limits(NamedTuple):
    """What one file may use up.

    Attributes:
        memory: bytes beyond what the process has when it is confined.
        cpu: seconds of processor time.
        wall: seconds in all, which the trainer watches over.
    """

    memory: int = 2 << 30
    cpu: int = 10
    wall: float = 60.0


def supported() -> str:
    """Why this machine cannot confine anything; an empty string if it is of a kind that can."""
    if not sys.platform.startswith("linux"):
        return f"it needs Linux, not {sys.platform}"
    if MACHINE not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return f"it needs 64-bit Python on x86-64 or ARM64, not {MACHINE}"
    return ""


def confine(limits: Limits, keep: Sequence[int]) -> None:
    """Confine this process, which must have one thread, and whatever it will run.

    Args:
        keep: file descriptors that stay open, besides the standard three, which go to /dev/null.

    Raises:
        OSError: a wall that must be there is not.
    """
    close_all_but(keep)
    memory = _memory() + limits.memory
    drop_privileges()
    landlock()
    limit(memory, limits.cpu)  # not before, because it allows no further descriptors
    seccomp()


def close_all_but(keep: Sequence[int]) -> None:
    """Close every file descriptor but these; input, output and error go nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    first = 3
    for fd in sorted({*keep, _most_files()}):
        os.closerange(first, fd)
        first = fd + 1


def _most_files() -> int:
    """One more than the largest descriptor that is open."""
    return max(int(name) for name in os.listdir("/proc/self/fd")) + 1


def _memory() -> int:
    """Bytes of address space that are in use."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def limit(memory: int, cpu: int) -> None:
    """Limit memory and time; no larger files, descriptors, processes, queues, locked memory or core dumps."""
    none = ("FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE")
    for name, most in (("AS", memory), ("CPU", cpu), *((name, 0) for name in none)):
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        endless = hard == resource.RLIM_INFINITY
        most = most if endless else min(most, hard)
        # where time is up, a signal of its own says so; a second later the process is killed
        last = most + 1 if name == "CPU" and (endless or most < hard) else most
        resource.setrlimit(kind, (most, last))


def drop_privileges() -> None:
    """No capabilities, no way to new ones, no debugger, and death when the parent dies."""
    c = libc()
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    checked(c.capset(header, bytes(24)), "capset")
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0), (_PR_SET_PDEATHSIG, int(signal.SIGKILL))):
        checked(c.prctl(option, value, 0, 0, 0), "prctl")


def landlock() -> int:
    """Take every right on files away (and on TCP ports and foreign signals, in newer kernels).

    Returns the ABI's version; 0: the kernel has no Landlock, and the list of system calls stands alone.
    """
    c = libc()
    version = c.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return 0
    files = (1 << _LANDLOCK_FILE_RIGHTS[min(version, len(_LANDLOCK_FILE_RIGHTS) - 1)]) - 1
    rights = struct.pack("QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = c.syscall(_LANDLOCK_CREATE, rights, ctypes.c_size_t(size), 0)
    checked(ruleset, "landlock_create_ruleset")
    try:
        checked(c.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def seccomp() -> None:
    """Let SYSTEM_CALLS through, NOT_EXECUTABLE and WITH_ARGUMENT with their conditions; all others fail with EPERM."""
    code = b"".join(struct.pack("HBBI", *step) for step in _filter())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    checked(libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0), "seccomp")


def _filter() -> list[tuple[int, int, int, int]]:
    """The filter as steps of classic BPF: (code, steps to skip if true, if false, number).

    It reads ``struct seccomp_data``: the call's number at 0, the architecture at 4, the arguments from 16 on, 8 bytes
    each, whose lower halves come first. Those that are compared are ints, of which the kernel takes the lower half.
    """
    place, architecture = _ARCHITECTURES[MACHINE]
    refuse, allow, kill = (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _KILL)
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), kill, (_LOAD, 0, 0, 0)]
    if MACHINE == "x86_64":
        steps += [(_AT_LEAST, 0, 1, 0x40000000), kill]  # the x32 way in, with numbers of its own
    for number in SYSTEM_CALLS.values():
        steps += [(_EQUAL, 0, 1, number[place]), allow]
    for number in NOT_EXECUTABLE.values():
        steps += [(_EQUAL, 0, 4, number[place]), (_LOAD, 0, 0, 32), (_ANY_BIT, 0, 1, _PROT_EXEC), refuse, allow]
    for numbers, argument, values in WITH_ARGUMENT.values():
        compare = [(_EQUAL, len(values) - 1 - i, 0, value) for i, value in enumerate(values)]
        compare[-1] = (_EQUAL, 0, 1, values[-1])
        steps += [(_EQUAL, 0, len(values) + 3, numbers[place]), (_LOAD, 0, 0, 16 + 8 * argument), *compare]
        steps += [allow, refuse]
    return [*steps, refuse]


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
