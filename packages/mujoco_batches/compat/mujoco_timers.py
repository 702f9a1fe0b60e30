"""``mjcb_time``, by which MuJoCo reads the clock about 15 times in a step.

MuJoCo's Python bindings set it, so that ``MjData.timer`` has times of the stages; ``set_mjcb_time`` cannot unset it. Of
batches nobody reads them, and a step of a cart-pole took 12 % longer. It waits for bindings that can unset the clock.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import mujoco

from mujoco_batches.compat import warn_once


@cache
def _clock() -> ctypes.c_void_p:
    """Return MuJoCo's pointer to the function, or one that nothing reads."""
    try:
        library = next(Path(mujoco.__file__).parent.glob("libmujoco*"))
        return ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mjcb_time")
    except (StopIteration, OSError, ValueError) as error:
        warn_once("mjcb_time of MuJoCo", str(error), "steps on the CPU read the clock, which takes time")
        return ctypes.c_void_p()


@contextmanager
def without_timers() -> Iterator[None]:
    """Let MuJoCo take no times of the stages of a step in the block."""
    clock = _clock()
    before, clock.value = clock.value, None
    try:
        yield
    finally:
        clock.value = before
