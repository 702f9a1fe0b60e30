"""``mjcb_time``, by which MuJoCo reads the clock about 15 times in a step.

MuJoCo's Python bindings set it, so that ``MjData.timer`` has times of the stages; ``set_mjcb_time`` cannot unset it. Of
batches nobody reads them, and a step of a cart-pole took 12 % longer. It waits for bindings that can unset the clock.
"""

import ctypes
from functools import cache
from pathlib import Path

import mujoco

from mujoco_batches.compat import warn_once


@cache
def stop_timers() -> None:
    """Let MuJoCo take no times of the stages of a step in this process from now on.

    The pointer is the process's, so that a block of one thread would change it for all.
    """
    try:
        library = next(Path(mujoco.__file__).parent.glob("libmujoco*"))
        ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mjcb_time").value = None
    except (StopIteration, OSError, ValueError) as error:
        warn_once("mjcb_time of MuJoCo", str(error), "steps on the CPU read the clock, which takes time")
