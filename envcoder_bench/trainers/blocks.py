"""Blocks of groups that learn together: how groups are divided, and how a block's work is run on its device."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from envcoder_bench.core.graph_capture import capturing


def cut_blocks(num_groups: int, largest: int) -> list[slice]:
    """Divide the groups into the fewest blocks of at most ``largest`` groups, of nearly equal size."""
    count = -(-num_groups // largest)
    bounds = [num_groups * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def cut_equal_blocks(keys: Sequence[object], largest: int) -> list[slice]:
    """Divide the groups into blocks as ``cut_blocks``, each of adjacent groups of equal keys."""
    slices: list[slice] = []
    for _, run in itertools.groupby(range(len(keys)), key=lambda group: keys[group]):
        groups = list(run)
        parts = cut_blocks(len(groups), largest)
        slices += [slice(groups[part.start], groups[part.stop - 1] + 1) for part in parts]
    return slices


def prepare_worker() -> None:
    """Configure a thread that updates learners."""
    torch.set_num_threads(1)
    # saturated units and idle weights give denormal numbers, which a CPU multiplies a hundred times slower
    torch.set_flush_denormal(True)


class CapturedFunction:
    """A function that runs eagerly the first time, is captured in a CUDA graph the second, and is replayed afterwards.

    An update has thousands of launches, which dominate its time.

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
            self._graph = graph  # after the capture: a failed one leaves nothing to replay
        self._graph.replay()
        return self._result
