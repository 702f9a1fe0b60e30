"""Compile and load Warp's kernels at the same time. Warp itself loads each one when it is first launched."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Callable, Iterator

import warp as wp

from envcoder_bench.core.cpus import own_cpus
from envcoder_bench.sim.warp_solvers import Solvers

try:  # not a part of Warp's interface
    from warp._src.codegen import _codegen_lock  # noqa: F401, with it several threads can compile
    from warp._src.context import Module as _Module

    Module: Any = _Module
except ImportError:
    Module = None

TELL_AFTER, TELL_EVERY = 10.0, 30.0  # seconds
_log = logging.getLogger(__name__)
Wanted = dict[tuple[Any, ...], None]  # modules, devices and block sizes, in the order of the launches


def load_kernels(launch: Callable[[], object]) -> None:
    """Compile and load what a function launches, as many modules at a time as this process has cores.

    The function is called without launching anything; of its conditions both branches are passed through, of its loops
    one round. It must be one that a CUDA graph can capture, which reads no results. A kernel that is not found in this
    way is loaded when it is launched, and so are all with a version of Warp whose inside is not known.

    Raises:
        Exception: a module cannot be compiled, as its launch would raise.
    """
    if Module is None:
        return
    wanted: Wanted = {}
    with contextlib.suppress(Exception), _recording(wanted):  # it asks for more than is there without loaded kernels
        launch()
    pool, solvers = ThreadPoolExecutor(own_cpus()), Solvers(wanted)
    began = time.monotonic()
    tell_at = began + TELL_AFTER

    def load(one: tuple[Any, ...]) -> None:
        if solvers.wait_for(one):
            Module.load(*one)

    # the largest ones first, so that the last one to begin is a short one
    ordered = sorted(wanted, key=lambda one: len(one[0].kernels), reverse=True)
    try:
        for done, loaded in enumerate(as_completed([pool.submit(load, one) for one in ordered]), 1):
            loaded.result()
            now = time.monotonic()
            if now >= tell_at and done < len(wanted):
                tell_at = now + TELL_EVERY
                progress = f"{done} of {len(wanted)} modules done; later starts find them in Warp's cache"
                _log.warning("compiling the simulator's kernels for %.0f s: %s", now - began, progress)
    finally:
        solvers.stop()
        pool.shutdown(cancel_futures=True)  # Ctrl-C waits only for what is being compiled


@contextlib.contextmanager
def _recording(wanted: Wanted) -> Iterator[None]:
    """Record which modules this thread's launches load, and launch nothing."""
    own, usual = threading.get_ident(), Module.load
    branch, loop, block_size = wp.capture_if, wp.capture_while, wp.get_suggested_block_size

    def load(module: Any, device: Any, block_dim: int | None = None, *rest: Any, **more: Any) -> Any:
        if threading.get_ident() != own:
            return usual(module, device, block_dim, *rest, **more)
        wanted[module, str(device), block_dim or module.options["block_dim"]] = None
        return None  # without a module, wp.launch returns

    def both(condition: Any, on_true: Any = None, on_false: Any = None, stream: Any = None, **given: Any) -> None:
        for body in (on_true, on_false):
            if callable(body):
                body(**given)

    def once(condition: Any, while_body: Any, stream: Any = None, **given: Any) -> None:
        if callable(while_body):
            while_body(**given)

    def guess(kernel: Any, device: Any = None) -> tuple[int, int]:
        load(kernel.module, wp.get_device(device))
        return block_size(kernel, "cpu")  # how large a grid is does not matter here

    Module.load, wp.capture_if, wp.capture_while, wp.get_suggested_block_size = load, both, once, guess
    try:
        yield
    finally:
        Module.load, wp.capture_if, wp.capture_while, wp.get_suggested_block_size = usual, branch, loop, block_size
