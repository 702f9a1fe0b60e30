"""Work on fixed memory as one CUDA graph: few groups are bound by launches, of which an update has thousands."""

from __future__ import annotations

from typing import Any, Callable

import torch


class CapturedFunction:
    """A function run eagerly the first time, captured the second, and replayed from then on; always eager on a CPU.

    It may read and write only tensors that stay where they are, must not wait for the device, and must do the same
    operations each time. What it returns is overwritten by the next call.

    Args:
        function: without arguments.
        device: where it runs.
        pool: ``torch.cuda.graph_pool_handle()``; graphs that never run at the same time share memory through one.
            None: never capture.
    """

    def __init__(self, function: Callable[[], Any], device: torch.device, pool: Any) -> None:
        self._function, self._device, self._pool = function, device, pool
        self._warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self) -> Any:
        if self._pool is None or not self._warm:
            self._warm = True
            return self._function()  # libraries get their handles and kernels here
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(self._device), torch.cuda.graph(graph, pool=self._pool):
                self._result = self._function()
            self._graph = graph  # only now: a capture that failed leaves no graph to replay
        self._graph.replay()
        return self._result
