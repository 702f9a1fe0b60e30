"""Capture of CUDA graphs on a given device, and detection of what waits for it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mujoco_batches.process import collection_paused

# calls before a capture: TorchScript profiles its first runs, then compiles; libraries create their handles
WARM_UPS = 3

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


@contextmanager
def syncs_raise() -> Iterator[None]:
    """Raise RuntimeError where a call within waits for the device, which cannot be captured.

    Torch misses some of these calls; capturing finds them, but can leave torch's random generator in disorder.
    """
    mode = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode(2)
    try:
        yield
    finally:
        _set_sync_debug_mode(mode)


def _set_sync_debug_mode(mode: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it misses some
        torch.cuda.set_sync_debug_mode(mode)
