"""Compile and load Warp's kernels at the same time. Warp itself loads each one when it is first launched."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterator

import warp as wp

from envcoder_bench.core.cpus import own_cpus

try:  # not a part of Warp's interface
    from warp._src import context

    Module: Any = context.Module
except (ImportError, AttributeError):
    Module = None

Wanted = dict[tuple[Any, ...], None]  # modules, devices and block sizes, in the order of the launches


def load_kernels(launch: Callable[[], object]) -> None:
    """Compile and load what a function launches, as many modules at a time as this process has cores.

    The function is called without launching anything: it must read no results, and both branches of its conditions and
    one round of its loops are passed through. What it launches nevertheless without being found, and everything with a
    version of Warp whose inside is not known, is loaded as usual, when it is launched.

    Raises:
        Exception: a module cannot be compiled, as its launch would raise.
    """
    if Module is None:
        return
    wanted: Wanted = {}
    with _recording(wanted):
        launch()
    pool = ThreadPoolExecutor(own_cpus())
    try:
        for loaded in [pool.submit(Module.load, *one) for one in wanted]:
            loaded.result()
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C waits only for what is being compiled


@contextlib.contextmanager
def _recording(wanted: Wanted) -> Iterator[None]:
    """Record which modules this thread's launches load, and launch nothing."""
    own, usual, branch, loop = threading.get_ident(), Module.load, wp.capture_if, wp.capture_while

    def load(module: Any, device: Any, block_dim: int | None = None, *rest: Any, **more: Any) -> Any:
        if threading.get_ident() != own:
            return usual(module, device, block_dim, *rest, **more)
        wanted[module, str(device), block_dim] = None
        return None  # without a module, wp.launch returns

    def both(condition: Any, on_true: Any = None, on_false: Any = None, stream: Any = None, **given: Any) -> None:
        for body in (on_true, on_false):
            if callable(body):
                body(**given)

    def once(condition: Any, while_body: Any, stream: Any = None, **given: Any) -> None:
        if callable(while_body):
            while_body(**given)

    Module.load, wp.capture_if, wp.capture_while = load, both, once
    try:
        yield
    finally:
        Module.load, wp.capture_if, wp.capture_while = usual, branch, loop
