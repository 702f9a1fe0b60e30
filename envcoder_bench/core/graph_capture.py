"""Capture of CUDA graphs on a given device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

import torch

from envcoder_bench.core.garbage import collection_paused

_streams: dict[int, torch.cuda.Stream] = {}  # by the index of the device


@contextmanager
def capturing(
    graph: torch.cuda.CUDAGraph, device: torch.device, pool: Any = None, mode: str = "global"
) -> Iterator[None]:
    """Capture what is launched within on ``device``, which is current meanwhile.

    Without a stream of that device, torch captures on one of the device that was current at its first capture. What is
    launched on another device then runs at once, and the graph stays empty.

    Args:
        graph: receives the launches.
        device: the device.
        pool: ``torch.cuda.graph_pool_handle()`` of the graph's memory; None: its own.
        mode: ``capture_error_mode`` of ``torch.cuda.graph``.
    """
    with collection_paused(), torch.cuda.device(device):
        index = torch.cuda.current_device()
        if index not in _streams:
            _streams[index] = torch.cuda.Stream(device)
        with torch.cuda.graph(graph, pool=pool, stream=_streams[index], capture_error_mode=mode):
            yield
