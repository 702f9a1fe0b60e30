"""The jail's own process: it loads torch once, and then forks a confined process for every file."""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from envcoder_bench.jail import wire
from envcoder_bench.jail.confine import Limits, confine


def main(control_fd: int) -> None:
    """Serve until the trainer closes the control socket.

    Over standard input comes what ``Examiner`` needs (see ``_examiner``). Over the socket come ``{"run": number}`` with
    two descriptors, to read a file's text from and to write the answer to, and ``{"kill": number}``; what goes back is
    ``{"ready": true}`` and ``{"ended": number, "status": as of waitpid, "cpu": seconds}``.
    """
    control = socket.socket(fileno=control_fd)
    setup = wire.read_to_end(0)
    length = int.from_bytes(setup[:8], "big")
    header = json.loads(setup[8 : 8 + length])
    examiner = _examiner(header, setup[8 + length :])
    limits, scan = Limits(**header["limits"]), bool(header["scan"])
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a process with threads cannot be forked safely")
    gc.collect()
    gc.freeze()  # what is here stays: forks share its memory as long as the collector leaves it alone
    control.send(b'{"ready": true}')
    _serve(control, examiner, limits, scan)


def _examiner(header: dict[str, Any], content: bytes) -> Any:
    """Make the examiner from the header and the tensors' bytes, one after the other."""
    import enum

    import torch

    from envcoder_bench.jail.stand_ins import check_members
    from envcoder_bench.jail.work import Examiner
    from envcoder_bench.tasks.contract import TaskContract
    from envcoder_bench.tasks.outside import mount

    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # it makes machine code, which the process may not run
    torch.jit.script = _as_it_is  # type: ignore[assignment]
    enum.EnumMeta._create_ = check_members(enum.EnumMeta._create_)  # type: ignore[attr-defined]
    _redirect_helpers()
    buffer, at = bytearray(content), 0
    made: dict[str, dict[str, Any]] = {"state": {}, "constants": {}}
    for kind, tensors in made.items():
        for name, dtype, shape in header[kind]:
            own = getattr(torch, dtype)
            count = 1
            for size in shape:
                count *= size
            flat = torch.frombuffer(buffer, dtype=own, count=count, offset=at) if count else torch.empty(0, dtype=own)
            tensors[name] = flat.clone().reshape(shape)
            at += count * flat.element_size()
    for name, folder in header["folders"].items():
        mount(name, Path(folder))
    names = ("baseline", "shaper_types", "seed", "sizes")
    contract = TaskContract.from_plain(header["task"])
    examiner = Examiner(
        contract, list(header["folders"]), made["state"], made["constants"], *(header[name] for name in names)
    )
    examiner.warm_up()
    return examiner


def _as_it_is(function: Any, *_: object, **__: object) -> Any:
    """In place of ``torch.jit.script``: what it would compile is traced here."""
    return function


def _redirect_helpers() -> None:
    """The helper modules are ours, wherever an original may be installed."""
    import importlib
    from types import ModuleType

    from envcoder_bench.shaping import redirect

    for name in redirect.PACKAGES:
        sys.modules[name] = ModuleType(name)
    for name in redirect.HELPER_MODULES:
        sys.modules[name] = importlib.import_module(redirect.OURS)


def _serve(control: socket.socket, examiner: Any, limits: Limits, scan: bool) -> None:
    running: dict[int, int] = {}  # numbers by process
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_ended(control, running)
        if control not in ready:
            continue
        message, fds = _receive(control)
        if not message:
            break
        order = json.loads(message)
        if "run" in order:
            running[_start(fds, examiner, limits, scan)] = order["run"]
            for fd in fds:
                os.close(fd)
        else:
            for process in [process for process, number in running.items() if number == order["kill"]]:
                os.kill(process, signal.SIGKILL)  # not waited for yet, so the number is still its own
    for process in running:
        os.kill(process, signal.SIGKILL)


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    message, ancillary, _, _ = control.recvmsg(4096, socket.CMSG_SPACE(2 * fds.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, list(fds)


def _report_ended(control: socket.socket, running: dict[int, int]) -> None:
    while running:
        process, status, used = os.wait4(-1, os.WNOHANG)
        if process == 0:
            return
        seconds = used.ru_utime + used.ru_stime
        control.send(json.dumps({"ended": running.pop(process), "status": status, "cpu": seconds}).encode())


def _start(fds: list[int], examiner: Any, limits: Limits, scan: bool) -> int:
    """Fork a process that answers; returns its number."""
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        _answer(fds[0], fds[1], examiner, limits, scan, parent)
    return process


def _answer(given: int, answer: int, examiner: Any, limits: Limits, scan: bool, parent: int) -> NoReturn:
    """Be confined, read a file's text, answer, end. Nothing may leave this function but by ``os._exit``."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # where memory runs out, this process goes first
        confine(limits, (given, answer))
        if os.getppid() == parent:
            made = examiner.judge(wire.read_to_end(given).decode("utf-8", "surrogateescape"), scan)
            wire.write_all(answer, wire.pack(made))
            code = 0
    except BaseException:
        code = 2
    finally:
        os._exit(code)
