"""Replay of whole parts of a control step as CUDA graphs.

Between the graphs of single stages torch launches some 60 small kernels in a step: masks, statistics, copies. With few
environments the host's launches take longer than the kernels. A part is what happens between the physics, the policy
and the counting of steps, so that all of it has the same step of the random numbers.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, Sequence, TypeVar

import torch

from envcoder_bench.core.capture import CapturedFunction
from envcoder_bench.env.dispatch import Dispatcher

T = TypeVar("T")


def step_graphs_wanted(device: torch.device) -> bool:
    """Return whether parts of a step are captured on ``device``.

    Off by default, as long as the tests of tests/env/test_step_graphs.py have not run on a GPU.
    """
    return device.type == "cuda" and os.environ.get("ENVCODER_BENCH_STEP_GRAPHS") == "1"


class StepGraphs:
    """Captures and replays parts of a step.

    Args:
        dispatch: the dispatcher whose stages the parts run.
        device: on a CPU parts run eagerly, in the same way as while they are captured.
    """

    def __init__(self, dispatch: Dispatcher, device: torch.device) -> None:
        self._dispatch, self._device = dispatch, device
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._parts: dict[str, CapturedFunction] = {}
        self._builds = -1

    def run(self, name: str, stages: Sequence[str], step: int, function: Callable[[], T]) -> T:
        """Call ``function``, or replay the part ``name``; the result is overwritten by the next replay.

        ``function`` may use only the device and fixed memory, and runs only these ``stages``, at this ``step``. It is
        called as it is as long as one of the stages has a function that cannot be captured, or is due for a comparison.
        """
        dispatch = self._dispatch
        if not dispatch.can_record(stages):
            return function()
        if self._builds != dispatch.builds:  # graphs hold the launches as they were
            self._parts.clear()
            self._builds = dispatch.builds
        if name not in self._parts:
            self._parts[name] = CapturedFunction(partial(self._recorded, function), self._device, self._pool)
        dispatch.begin_recorded(stages, step)
        return self._parts[name]()

    def _recorded(self, function: Callable[[], Any]) -> Any:
        with self._dispatch.recording():
            return function()
