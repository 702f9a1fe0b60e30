"""Warp's streams for torch's."""

from __future__ import annotations

import torch
import warp as wp

_streams: dict[int, wp.Stream] = {}  # by the handles of torch's


def warp_stream(device: torch.device) -> wp.Stream | None:
    """Return torch's current stream on ``device``, also one that captures, for Warp's launches; None on a CPU."""
    if device.type != "cuda":
        return None
    own = torch.cuda.current_stream(device)
    if own.cuda_stream not in _streams:
        _streams[own.cuda_stream] = wp.stream_from_torch(own)
    return _streams[own.cuda_stream]
