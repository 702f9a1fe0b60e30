"""Histories of observations that move no number on the host, so that graphs can contain them."""

# mjlab is optional
# pyright: reportMissingImports=false

import torch
from mjlab.utils.buffers import CircularBuffer
from torch import Tensor


class ShiftedBuffer(CircularBuffer):
    """mjlab's ring of frames, in which time is the order in memory: an append shifts it, instead of a pointer."""

    def append(self, data: Tensor) -> None:
        if self._buffer is None:
            self._buffer, self._pointer = data.expand(self._max_len, *data.shape).clone(), self._max_len - 1
        frames = torch.cat((self._buffer[1:], data.unsqueeze(0)))
        first = (self._num_pushes == 0).view(-1, *[1] * (data.dim() - 1))  # fills the history of its environment
        self._buffer.copy_(torch.where(first, data, frames))
        self._num_pushes += 1
