"""Warp's modules: which of them the launches of a function load, found without launching anything.

Uses ``context.Module.load`` and the lock of Warp's code generator, with which several threads can compile. While a
function is recorded, replaces ``Module.load``, ``capture_if``, ``capture_while`` and ``get_suggested_block_size``.

Why: Warp loads a module when one of its kernels is first launched, one module after another: minutes for a simulator.
``wp.load_module`` loads several at a time, but its caller must know them, with the size of their blocks.

Upstream: NVIDIA/warp issue 1977 (open), to compile the kernels of a graph in parallel; issue 1086 has what there is.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import warp as wp

from mujoco_batches.compat import difference, replaced, warn_once

try:
    from warp._src.codegen import _codegen_lock  # noqa: F401, with it several threads can compile
    from warp._src.context import Module
except ImportError:
    Module: Any = None

Target = tuple[Any, str, int]  # a module, a device, and a size of blocks
Targets = dict[Target, None]  # targets in the order of their launches


def is_as_expected() -> bool:
    """Return whether this Warp's modules can be found and loaded in threads; warn if they cannot."""
    reason = difference(Module, {"load": ("self", "device", "block_dim")})
    if reason:
        warn_once("Warp's Module", reason, "kernels are compiled one after another, and the first start takes longer")
    return not reason


def load(target: Target) -> None:
    """Compile a module, or find it in Warp's cache, and load it."""
    Module.load(*target)


@contextlib.contextmanager
def recording(targets: Targets) -> Iterator[None]:
    """Record which modules this thread's launches load, and launch nothing.

    Both branches of conditions are passed through, and one round of loops.
    """
    thread, usual, block_size = threading.get_ident(), Module.load, wp.get_suggested_block_size

    def load(module: Any, device: Any, block_dim: int | None = None, *rest: Any, **more: Any) -> Any:
        if threading.get_ident() != thread:
            return usual(module, device, block_dim, *rest, **more)
        targets[module, str(device), block_dim or module.options["block_dim"]] = None
        return None  # without a module, wp.launch returns

    def both(condition: Any, on_true: Any = None, on_false: Any = None, stream: Any = None, **arguments: Any) -> None:
        for body in (on_true, on_false):
            if callable(body):
                body(**arguments)

    def once(condition: Any, while_body: Any, stream: Any = None, **arguments: Any) -> None:
        if callable(while_body):
            while_body(**arguments)

    def guess(kernel: Any, device: Any = None) -> tuple[int, int]:
        load(kernel.module, wp.get_device(device))
        return block_size(kernel, "cpu")  # how large a grid is does not matter here

    functions = {"capture_if": both, "capture_while": once, "get_suggested_block_size": guess}
    with replaced(Module, {"load": load}), replaced(wp, functions):
        yield
