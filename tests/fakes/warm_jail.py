"""Start a jail's server process by a fork of one that has examined a file, instead of starting a process each time.

The fork neither imports torch nor examines a file to warm up. What the server does then is the same; the tests of the
jail's confinement start it as the package does.
"""

import array
import contextlib
import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from shaping_fakes import BASELINE, FakeTask

from envcoder_bench.jail import child, client, wire

_BOOT = "import sys; sys.path[:] = {path!r}; import warm_jail; warm_jail.serve({fd})"
_FDS = 3  # of a request: control socket, standard input, standard error
_own: tuple[Any, socket.socket, Sequence[str]] | None = None  # the process to fork, its socket and its import path
_start = client._start
_lock = threading.Lock()  # some tests start jails in two threads


class Forked:
    """As much of subprocess.Popen as ``JailClient`` uses, for a process that is not a child of this one."""

    def __init__(self, pid: int, stderr: int) -> None:
        self.pid, self.stderr = pid, os.fdopen(stderr, "rb")
        self._handle = os.pidfd_open(pid)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> None:
        select.select([self._handle], [], [])
        os.close(self._handle)
        self.stderr.close()


def start(control: int, setup: bytes) -> Any:
    """Replace ``client._start``."""
    with _lock:
        return _forked(control, setup)


def _forked(control: int, setup: bytes) -> Any:
    global _own
    path = list(sys.path)
    if _own is not None and _own[2] != path:  # another import path needs another process
        stop()
    if _own is None:
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as stack:
            boot, client._BOOT = client._BOOT, _BOOT
            stack.callback(setattr, client, "_BOOT", boot)
            process = _start(theirs.fileno(), _setup())
        _own = process, own, path
    else:
        sys.audit("subprocess.Popen", "a jail", [], None, None)  # for the check of fast tests
    (read, write), (error_read, error_write) = os.pipe(), os.pipe()
    fds = array.array("i", [control, read, error_write])
    _own[1].sendmsg([b"fork"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    os.close(read)
    os.close(error_write)
    started = Forked(int(_own[1].recv(64)), error_read)
    with contextlib.suppress(BrokenPipeError), os.fdopen(write, "wb") as stdin:
        stdin.write(setup)
    return started


def _setup() -> bytes:
    """Return what the server of a small task's jail is sent."""
    task = FakeTask(2)
    sent: list[bytes] = []
    thread = threading.get_ident()

    def keep(control: int, setup: bytes) -> Any:
        if threading.get_ident() != thread:  # a jail of a test that starts several at once
            return start(control, setup)
        sent.append(setup)
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(InterruptedError):
        patch.setattr(client, "_start", keep)
        patch.setattr(client, "outside_tasks", dict)
        client.JailClient(task, {**task.state, "progress_buf": torch.zeros(2, dtype=torch.int64)}, BASELINE)
    return sent[0]


def stop() -> None:
    """End the process to fork; its forks are killed by those who started them."""
    global _own
    if _own is not None:
        _own[1].close()
        _own[0].stderr.close()
        _own[0].wait()
        _own = None


def serve(fd: int) -> None:
    """Fork for every request until the socket is closed."""
    examiner, _ = child._make_examiner(wire.read_to_end(0))
    type(examiner).warm_up = lambda self: None
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=fd)
    while True:
        message, ancillary, _, _ = requests.recvmsg(64, socket.CMSG_SPACE(4 * _FDS))
        if not message:
            break
        fds = array.array("i")
        fds.frombytes(ancillary[0][2])
        pid = os.fork()
        if pid == 0:
            _become_a_server(requests, *fds)
        requests.send(str(pid).encode())
        for each in fds:
            os.close(each)
        while _reaped():
            pass


def _reaped() -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    return False


def _become_a_server(requests: socket.socket, control: int, stdin: int, stderr: int) -> None:
    code = 1
    try:
        requests.close()
        os.setsid()
        for fd, standard in ((stdin, 0), (stderr, 2)):
            os.dup2(fd, standard)
            os.close(fd)
        child.main(control)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
