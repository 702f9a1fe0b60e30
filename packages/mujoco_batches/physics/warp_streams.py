"""Warp's streams for torch's."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import warp as wp

_streams: dict[tuple[int, int], wp.Stream] = {}  # keys: torch's device and handle; 0 is a device's default stream


def warp_stream(device: torch.device) -> wp.Stream | None:
    """Return torch's current stream on ``device``, also one that captures, for Warp's launches; None on a CPU."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.current_stream(device)
    key = stream.device.index, stream.cuda_stream
    if key not in _streams:
        _streams[key] = wp.stream_from_torch(stream)
    return _streams[key]


class TorchStream:
    """Sends Warp's launches on a device to torch's current stream, in order with torch's own work."""

    def __init__(self, device: torch.device) -> None:
        self.device = wp.device_from_torch(device)
        self._torch_device = device

    @contextmanager
    def __call__(self) -> Iterator[None]:
        stream = warp_stream(self._torch_device)
        if stream is None:
            with wp.ScopedDevice(self.device):
                yield
            return
        with wp.ScopedStream(stream, sync_enter=False):
            yield
