"""The jail's server process: it loads torch once and forks a confined process for every file."""

import array
import contextlib
import gc
import io
import json
import os
import select
import signal
import socket
from pathlib import Path
from typing import Any, NoReturn

from envcoder_bench.jail import wire
from envcoder_bench.jail.confine import Limits, confine


def main(control_fd: int) -> None:
    """Serve requests until the client closes the control socket.

    Standard input carries the arguments of ``Examiner`` (see ``_make_examiner``). The socket carries the requests
    ``{"run": job}``, with two descriptors to read the source from and to write the answer to, and ``{"kill": job}``,
    and the replies ``{"ready": true}``, ``{"began": job, "pid": process id}`` and
    ``{"ended": job, "status": the status of waitpid, "cpu": seconds}``.
    """
    control = socket.socket(fileno=control_fd)
    setup = wire.read_to_end(0)
    examiner, limits = _make_examiner(setup)
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a process with threads cannot be forked safely")
    gc.collect()
    gc.freeze()  # forks share this memory as long as the collector does not touch it
    control.send(b'{"ready": true}')
    _serve(control, examiner, limits)


def _make_examiner(setup: bytes) -> tuple[Any, Limits]:
    """Create the examiner, and the limits of each file, from the client's bytes."""
    import logging
    import warnings

    import torch

    from envcoder_bench.jail.examiner import Examiner
    from envcoder_bench.jail.surroundings import replace_clocks
    from envcoder_bench.shaping.loading import redirect_helpers
    from envcoder_bench.sources.outside import mount
    from envcoder_bench.tasks.contract import TaskContract

    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # it generates machine code, which a confined process cannot execute
    torch.jit.script = _identity  # type: ignore[assignment]
    logging.disable()  # nobody reads the output, and formatting would read a tensor's values
    warnings.simplefilter("ignore")
    redirect_helpers(first=True)  # even if the originals are installed
    replace_clocks()
    header = torch.load(io.BytesIO(setup), weights_only=True)
    for name, folder in header["folders"].items():
        mount(name, Path(folder))
    names = ("state", "constants", "baseline", "shaper_types", "seed", "sizes", "reads_dicts")
    contract = TaskContract.from_plain(header["task"])
    examiner = Examiner(contract, list(header["folders"]), *(header[name] for name in names))
    examiner.warm_up()
    return examiner, Limits(**header["limits"])


def _identity(function: Any, *_: object, **__: object) -> Any:
    """Replace ``torch.jit.script``: functions are traced as they are."""
    return function


def _serve(control: socket.socket, examiner: Any, limits: Limits) -> None:
    running: dict[int, int] = {}  # process id: job
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, wakeup_read], [], [])
        if wakeup_read in ready:
            os.read(wakeup_read, 4096)
            _report_exits(control, running)
        if control not in ready:
            continue
        message, fds = _receive(control)
        if not message:
            break
        request = json.loads(message)
        if "run" in request:
            pid = _fork(fds, examiner, limits)
            running[pid] = request["run"]
            control.send(json.dumps({"began": request["run"], "pid": pid}).encode())
            for fd in fds:
                os.close(fd)
        else:
            for pid in [pid for pid, job in running.items() if job == request["kill"]]:
                os.kill(pid, signal.SIGKILL)  # nobody has waited for it, so that its id is not in use again
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    message, ancillary, _, _ = control.recvmsg(4096, socket.CMSG_SPACE(2 * fds.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, list(fds)


def _report_exits(control: socket.socket, running: dict[int, int]) -> None:
    while running:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        seconds = usage.ru_utime + usage.ru_stime
        control.send(json.dumps({"ended": running.pop(pid), "status": status, "cpu": seconds}).encode())


def _fork(fds: list[int], examiner: Any, limits: Limits) -> int:
    """Fork a confined process that examines one file; return its process id."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _run_confined(fds[0], fds[1], examiner, limits, parent)
    return pid


def _run_confined(source_fd: int, answer_fd: int, examiner: Any, limits: Limits, parent: int) -> NoReturn:
    """Confine this process, read a source, write the answer, and end with ``os._exit`` whatever happens."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")  # without free memory, the kernel kills this process first
        confine(limits, (source_fd, answer_fd))
        if os.getppid() == parent:
            answer = examiner.examine(wire.read_to_end(source_fd).decode("utf-8", "surrogateescape"))
            wire.write_all(answer_fd, wire.pack(answer))
            code = 0
    except BaseException:
        code = 2
    finally:
        os._exit(code)
