"""Each restriction works without the others."""

import errno
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_jail
from attacks import GOOD
from jail_fakes import judged

from envcoder_bench.jail import client, confine, probing
from envcoder_bench.jail.confine import Limits
from envcoder_bench.shaping.contract import Candidate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the jail needs Linux"),
]
ROOT = Path(confine.__file__).parent.parent.parent
TRY = """
import errno, json, os, sys
sys.path.insert(0, {root!r})
from envcoder_bench.jail import confine
from envcoder_bench.jail.confine import Limits
import resource

def result(attempt):
    try:
        return str(attempt())
    except OSError as error:
        return errno.errorcode[error.errno]
    except MemoryError:
        return "MemoryError"

found = {{}}
def tell():
    os.write(1, json.dumps(found).encode())
{body}
tell()
"""


def tried(body):
    """Run ``body`` in a process and return its findings."""
    code = TRY.format(root=str(ROOT), body=body)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_seccomp_checks_arguments():
    """Only arguments that concern this process itself are allowed."""
    found = tried(
        """
import ctypes, time
libc = confine.libc()
libc.mmap.restype = ctypes.c_void_p
page = libc.mmap(None, 8192, 3, 34, -1, 0)
word = ctypes.c_int(7)
place = {"x86_64": 0, "aarch64": 1}[confine.MACHINE]
parent = os.getppid()
confine.drop_privileges()
confine.seccomp()

def call(name, *arguments):
    number = confine.WITH_ARGUMENT[name][0][place]
    return lambda: confine.check_result(libc.syscall(ctypes.c_long(number), *arguments), "")

for advice in (*range(26), 100, 101, 4 + (1 << 31)):
    found[f"madvise {advice}"] = result(call("madvise", ctypes.c_void_p(page), ctypes.c_size_t(4096), advice))
timeout = (ctypes.c_long * 2)(0, 1)
for op in range(14):
    for bits in (0, 128, 256, 384):
        given = (ctypes.byref(word), op | bits, 3, ctypes.byref(timeout), ctypes.byref(word), 1)
        found[f"futex {op | bits}"] = result(call("futex", *given))
own = (ctypes.c_long * 2)()
for clock in (*range(16), -6, ~parent << 3 | 2, ~os.getpid() << 3 | 2):
    key = f"clock {clock}" if -7 < clock < 99 else f"clock of {'this' if clock >> 3 == ~os.getpid() else 'parent'}"
    found[key] = result(call("clock_gettime", clock, ctypes.byref(own)))
    found[f"resolution {key}"] = result(call("clock_getres", clock, ctypes.byref(own)))
mask = (ctypes.c_ulong * 128)()
for pid in (0, 1, os.getpid(), parent):
    key = {0: "0", 1: "1", parent: "parent"}.get(pid, "own number")
    found[f"affinity {key}"] = result(call("sched_getaffinity", pid, 1024, ctypes.byref(mask)))
found["affinity of Python"] = result(lambda: len(os.sched_getaffinity(0)) > 0)
found["clocks of Python"] = result(lambda: time.time() > 0 and time.process_time() > 0 and time.thread_time() > 0)
import _thread
lock = _thread.allocate_lock()
found["locks"] = result(lambda: lock.acquire() and not lock.acquire(timeout=0.01))
"""
    )
    refused = {key for key, told in found.items() if told == "EPERM"}
    allowed = {
        *(f"madvise {advice}" for advice in (0, 1, 2, 3, 4, 8, 14, 15, 16)),
        *(f"futex {op | bits}" for op in (0, 1, 9, 10) for bits in (128, 384)),
        *(f"clock {clock}" for clock in range(12)),
        *(f"resolution clock {clock}" for clock in range(12)),
        "affinity 0", "affinity of Python", "clocks of Python", "locks",
    }  # fmt: skip
    assert set(found) - refused == allowed
    for key in ("affinity of Python", "clocks of Python", "locks"):
        assert found[key] == "True"


def test_landlock_denies_file_access():
    version = probing._probe()["landlock"]
    found = tried(
        """
confine.drop_privileges()
found["version"] = confine.landlock()
found["open"] = result(lambda: os.open("/", os.O_RDONLY))
found["read"] = result(lambda: open("/etc/passwd").read(3))
found["write"] = result(lambda: open("/tmp/envcoder_bench_was_here", "w"))
found["exec"] = result(lambda: os.execv("/bin/true", ["true"]))
"""
    )
    assert found.pop("version") == version
    if version:
        assert set(found.values()) == {"EACCES"}
    assert not os.path.exists("/tmp/envcoder_bench_was_here")


def test_resource_limits_apply():
    found = tried(
        """
confine.limit_resources(confine.address_space() + (64 << 20), 7)
found["open"] = result(lambda: os.open("/", os.O_RDONLY))
found["memory"] = result(lambda: len(bytearray(70 << 20)))
found["some"] = result(lambda: len(bytearray(30 << 20)))
found["cpu"] = resource.getrlimit(resource.RLIMIT_CPU)
found["core"] = resource.getrlimit(resource.RLIMIT_CORE)
found["size"] = resource.getrlimit(resource.RLIMIT_FSIZE)
found["processes"] = resource.getrlimit(resource.RLIMIT_NPROC)
"""
    )
    assert found["open"] == errno.errorcode[errno.EMFILE]
    assert found["memory"] == "MemoryError" and found["some"] == str(30 << 20)
    assert found["cpu"] == [7, 8] and found["core"] == found["size"] == found["processes"] == [0, 0]


def test_drop_privileges_clears_capabilities():
    found = tried(
        """
confine.drop_privileges()
lines = open("/proc/self/status").read().splitlines()
found.update(line.split(":\\t", 1) for line in lines if line.startswith(("CapEff", "CapPrm", "NoNewPrivs")))
libc = confine.libc()
found["dumpable"] = libc.prctl(3, 0, 0, 0, 0)
import ctypes
signal = ctypes.c_int()
libc.prctl(2, ctypes.byref(signal), 0, 0, 0)
found["dies with its parent"] = signal.value
"""
    )
    assert int(found["CapEff"], 16) == int(found["CapPrm"], 16) == 0
    assert found["NoNewPrivs"] == "1" and found["dumpable"] == 0 and found["dies with its parent"] == 9


def verdict(number, machine, arguments=()):
    """Interpret the filter for a call."""
    data = struct.pack("<iIQ6Q", number, machine, 0, *arguments, *[0] * (6 - len(arguments)))
    steps, at, value = confine._filter(), 0, 0
    while True:
        code, yes, no, operand = steps[at]
        if code == confine._RETURN:
            return operand
        if code == confine._LOAD:
            value = struct.unpack_from("<I", data, operand)[0]
            at += 1
        else:
            true = {confine._EQUAL: value == operand, confine._AT_LEAST: value >= operand}.get(code, value & operand)
            at += 1 + (yes if true else no)


def test_filter_refuses_every_number_that_it_does_not_list():
    """Those included that the kernel does not know yet, or serves before it asks a filter (335 and 336 on x86-64)."""
    machine, architecture = confine._ARCHITECTURES[confine.MACHINE]
    listed = {pair[machine] for pair in (confine.SYSTEM_CALLS | confine.NOT_EXECUTABLE).values()}
    conditional = {pair[machine] for pair, *_ in confine.WITH_ARGUMENT.values()}
    for number in (*range(2000), 335, 336, 10**6, 2**30 - 1):
        told = verdict(number, architecture)
        assert told == confine._ALLOW if number in listed else number in conditional or told == confine._REFUSE
    assert verdict(39, architecture ^ 1) == confine._KILL


@pytest.mark.skipif(confine.MACHINE != "x86_64", reason="numbers of x86-64")
@pytest.mark.parametrize("number", [335, 336, 337, 700])
def test_calls_that_the_kernel_serves_before_the_filter_fail(number):
    """335 and 336, of new kernels' probes, end the process or fail outside the code that the kernel itself maps."""
    call = f"result(lambda: confine.check_result(confine.libc().syscall({number}, 0, 0, 0, 0, 0, 0), ''))"
    body = f"confine.drop_privileges()\nconfine.seccomp()\nfound['told'] = {call}"
    code = TRY.format(root=str(ROOT), body=body)
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGILL or json.loads(done.stdout)["told"] in ("EPERM", "ENXIO", "ENOSYS")


def test_capabilities_that_stay_are_an_error(monkeypatch):
    class Pretends:
        def capset(self, *_):
            return 0

        def capget(self, header, data):
            data[0] = b"\x01"
            return 0

        def prctl(self, *_):
            return 0

    monkeypatch.setattr(confine, "libc", Pretends)
    with pytest.raises(OSError, match="capset had no effect"):
        confine.drop_privileges()


def test_close_all_but_keeps_given_descriptors():
    found = tried(
        """
reads, writes = os.pipe()
other = os.dup(writes)
confine_to = os.dup(1)
confine.close_all_but((writes, confine_to))
found["open"] = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
found["kept"] = sorted((writes, confine_to))
found["standard"] = [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)]
os.dup2(confine_to, 1)
"""
    )
    listing = set(found["open"]) - {0, 1, 2, *found["kept"]}
    assert len(listing) <= 1  # the listing's own
    assert set(found["kept"]) <= set(found["open"]) and found["standard"] == ["/dev/null"] * 3


def test_system_calls_have_numbers_for_both_machines():
    with_argument = {name: own[0] for name, own in confine.WITH_ARGUMENT.items()}
    calls = {**confine.SYSTEM_CALLS, **confine.NOT_EXECUTABLE, **with_argument}
    assert len(calls) == len(confine.SYSTEM_CALLS) + len(confine.NOT_EXECUTABLE) + len(with_argument)
    for place in (0, 1):
        numbers = [pair[place] for pair in calls.values()]
        assert len(set(numbers)) == len(numbers)


LOCKED = "lock = torch.sys.modules['_thread'].allocate_lock()\nlock.acquire()\n"
WAITING = {
    "a lock": LOCKED + "lock.acquire()\n",
    "a lock of another thread": "lock = torch.sys.modules['_thread'].RLock()\n"
    "lock._acquire_restore((1, 7))\nlock.acquire()\n",
    "again and again": LOCKED + "while True: lock.acquire(timeout=0.3)\n",
}


@pytest.fixture
def warm(monkeypatch):
    """Start the jail as other tests do, where its confinement is not the subject."""
    monkeypatch.setattr(client, "_start", warm_jail.start)


def test_waiting_processes_are_ended(warm):
    """They use next to no processor time, and the files after them are examined."""
    began = time.monotonic()
    verdicts = judged({**WAITING, "good": GOOD}, Limits(memory=400 << 20, cpu=5, wall=60.0, idle=1.5))
    assert time.monotonic() - began < 40
    assert isinstance(verdicts.pop("good"), Candidate)
    for verdict in verdicts.values():
        assert "waits: it used no processor time for 1.5 s" in str(verdict)


def test_time_beyond_the_limit_is_shared_by_all_files(warm):
    """Three files that wait take ``wall`` each and ``spare`` in all."""
    limits = Limits(memory=400 << 20, cpu=5, wall=1.0, spare=2.0, idle=60.0)
    began = time.monotonic()
    verdicts = judged({f"waits{k}": f"{WAITING['a lock']}# {k}\n" for k in range(3)}, limits)
    assert all("takes longer than 1 s" in str(verdict) for verdict in verdicts.values())
    assert time.monotonic() - began < 3 * 1 + 2 + 25  # the start of the jail included


def test_all_attempts_are_refused():
    found = probing._probe()
    assert all(found[name] is True for name in probing.REQUIRED)
    assert not found["landlock"] or found["landlock alone"] is True
