"""Capture of CUDA graphs on a given device, and detection of calls that wait for it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mujoco_batches.process import collection_paused

# calls before a capture: TorchScript profiles its first runs, then compiles; libraries create their handles
WARM_UPS = 3

_streams: dict[int, torch.cuda.Stream] = {}  # the stream of each device, by its index


@contextmanager
def capturing(
    graph: torch.cuda.CUDAGraph, device: torch.device, pool: Any = None, mode: str = "global"
) -> Iterator[None]:
    """Capture all launches inside the block on ``device``, which is the current device meanwhile.

    The stream belongs to that device. Torch's default is a stream of the device that was current at the first capture:
    launches on another device would run at once, and the graph would stay empty.

    Args:
        graph: receives the launches.
        device: the device.
        pool: ``torch.cuda.graph_pool_handle()`` of the graph's memory; None for memory of its own.
        mode: ``capture_error_mode`` of ``torch.cuda.graph``.
    """
    with collection_paused(), torch.cuda.device(device), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # there may be nothing to compute
        index = torch.cuda.current_device()
        if index not in _streams:
            _streams[index] = torch.cuda.Stream(device)
        with torch.cuda.graph(graph, pool=pool, stream=_streams[index], capture_error_mode=mode):
            yield


def end_failed_capture(device: torch.device) -> None:
    """Let torch's random generator know that a capture has failed: a complete capture ends it."""
    torch.cuda.synchronize(device)
    with capturing(torch.cuda.CUDAGraph(), device):
        pass


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
        warnings.simplefilter("ignore")  # torch warns that it misses some calls
        torch.cuda.set_sync_debug_mode(mode)
