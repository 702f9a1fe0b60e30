"""Histories without a pointer, against mjlab's."""

import pytest

pytest.importorskip("mjlab")

import torch
from mjlab.utils.buffers import CircularBuffer

from envcoder_bench.sources.mjlab_tasks.histories import ShiftedBuffer


@pytest.mark.parametrize("length", [1, 3])
def test_frames_resets_backfills_and_lags_are_those_of_the_ring(length):
    ring, shifted = (cls(length, 4, "cpu") for cls in (CircularBuffer, ShiftedBuffer))
    for k in range(9):
        frame, some = torch.randn(4, 2), torch.randperm(4)[: k % 3]
        for buffer in (ring, shifted):
            buffer.append(frame)
            if k % 2:
                buffer.reset(some)
            if k == 7:
                buffer.backfill(-frame, some)
        assert torch.equal(ring.buffer, shifted.buffer) and torch.equal(ring.current_length, shifted.current_length)
        assert all(torch.equal(ring[lag], shifted[lag]) for lag in range(length + 1))
