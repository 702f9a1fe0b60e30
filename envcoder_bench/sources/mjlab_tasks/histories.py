"""Histories and delays that move no number on the host, so that graphs can contain them."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from mjlab.utils.buffers import CircularBuffer, DelayBuffer
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


class ActuatorDelay(DelayBuffer):
    """mjlab's delay of an actuator's commands, which can go on in some environments alone.

    mjlab writes commands anew after a reset, which takes a step of the delays of all environments. Then the delay of
    one would depend on the resets of others.

    Attributes:
        begins: ``(n,)`` bool, environments whose episodes begin: the others keep their commands; None: all go on.
    """

    begins: Tensor | None = None

    def append(self, data: Tensor) -> None:
        if self.begins is None or not self.is_initialized:
            super().append(data)
            return
        # the first frame fills the history
        buffer, first = self._buffer, self.begins.view(-1, *[1] * (data.dim() - 1))
        assert buffer._buffer is not None
        buffer._buffer.copy_(torch.where(first, data, buffer._buffer))
        buffer._num_pushes.masked_fill_(self.begins, 1)

    def compute(self) -> Tensor:
        if self.begins is None:
            return super().compute()
        lags, steps = self._current_lags.clone(), self._step_count.clone()
        super().compute()
        self._current_lags = torch.where(self.begins, self._current_lags, lags)
        self._step_count = torch.where(self.begins, self._step_count, steps)
        return self._buffer[self._current_lags]  # a lag is at most that of the oldest frame


@contextmanager
def beginning(delays: Sequence[ActuatorDelay], mask: Tensor) -> Iterator[None]:
    """Let delays go on inside the block where ``mask`` ``(n,)`` is True."""
    for delay in delays:
        delay.begins = mask
    try:
        yield
    finally:
        for delay in delays:
            del delay.begins
