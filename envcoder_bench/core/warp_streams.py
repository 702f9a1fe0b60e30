"""Warp's streams for torch's."""

import torch
import warp as wp

_streams: dict[tuple[int, int], wp.Stream] = {}  # by torch's devices and handles; each device's default stream is 0


def warp_stream(device: torch.device) -> wp.Stream | None:
    """Return torch's current stream on ``device``, also one that captures, for Warp's launches; None on a CPU."""
    if device.type != "cuda":
        return None
    own = torch.cuda.current_stream(device)
    key = own.device.index, own.cuda_stream
    if key not in _streams:
        _streams[key] = wp.stream_from_torch(own)
    return _streams[key]
