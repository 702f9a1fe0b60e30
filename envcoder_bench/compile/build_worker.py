"""A process that compiles kernels into Warp's cache; it can be killed when a compiler takes too long.

``building`` starts it. It reads lines of JSON ``{"code": ..., "target": ...}`` from standard input and writes
``{"error": ...}`` to standard output after each; the text is empty if the kernel was compiled.
"""

import contextlib
import ctypes
import json
import os
import signal
import sys

MEMORY = 4 << 30  # bytes of data


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    if sys.platform.startswith("linux"):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG: end with the parent
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # compilers print to standard output
    from envcoder_bench.compile import warp_kernel

    for line in sys.stdin:
        order, error = json.loads(line), ""
        try:
            warp_kernel.build(order["code"], order["target"])
        except Exception as fault:
            error = " ".join(str(fault).split()) or type(fault).__name__
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"error": error[:500]}), file=answers, flush=True)
