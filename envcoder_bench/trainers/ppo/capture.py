"""Capture of functions on fixed memory as CUDA graphs. An update has thousands of launches, which dominate its time."""

from collections.abc import Callable
from typing import Any

import torch

from envcoder_bench.core.graph_capture import capturing


class CapturedFunction:
    """A function that runs eagerly the first time, is captured the second, and is replayed afterwards.

    It may read and write only tensors in fixed memory, must not wait for the device, and must perform the same
    operations each time. Its result is overwritten by the next call. On a CPU it always runs eagerly.

    Args:
        function: a function without arguments.
        device: the device on which it runs.
        pool: ``torch.cuda.graph_pool_handle()``; graphs that never run concurrently can share one. None: never capture.
    """

    def __init__(self, function: Callable[[], Any], device: torch.device, pool: Any) -> None:
        self._function, self._device, self._pool = function, device, pool
        self._warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self) -> Any:
        if self._pool is None or not self._warm:
            self._warm = True
            return self._function()  # libraries create their handles and load kernels
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            with capturing(graph, self._device, self._pool):
                self._result = self._function()
            self._graph = graph  # only now: after a failed capture there is no graph to replay
        self._graph.replay()
        return self._result
