"""Named spans in the code, timed only while a profiler is active.

Spans nest. Time counts for the innermost span only, so that the times of all spans sum to the total.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

REST = "bookkeeping"  # the time outside all spans
EVALUATION, RESULTS = "evaluation", "results"  # spans between iterations
COMPARISON = "comparison"  # comparing compiled functions with the originals


class _Off:
    """The span while no profiler is active; it does nothing."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


_OFF = _Off()
_active: Profiler | None = None


def span(name: str, whole: bool = False) -> AbstractContextManager[None]:
    """Count the time inside the block for ``name``; with ``whole``, the time of inner spans too.

    Costs a tenth of a microsecond while no profiler is active. Spans in other threads than the profiled one and in the
    capture of a CUDA graph are not measured; a graph's replay counts for the span that contains it.
    """
    return _OFF if _active is None else _active.span(name, whole)


class HostClock:
    """Wall-clock time of the Python thread."""

    def stamp(self) -> float:
        return time.perf_counter()

    def seconds(self, began: float, ended: float) -> float:
        return ended - began


class CudaClock:
    """Time on the device's current stream, measured by events that are read at the end.

    While the device waits for Python, its time counts for the span whose launches it waits for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def stamp(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, began: torch.cuda.Event, ended: torch.cuda.Event) -> float:
        ended.synchronize()
        return began.elapsed_time(ended) / 1e3


class Timeline:
    """The changes of the innermost span, each with a time stamp of every clock.

    Attributes:
        counts: how often each span was entered.
    """

    def __init__(self, clocks: Sequence[Any]) -> None:
        self._clocks = list(clocks)
        self._marks: list[tuple[str, list[Any]]] = []
        self._stack: list[tuple[str, bool]] = [(REST, False)]
        self.counts: dict[str, int] = {}
        self._mark()

    def enter(self, name: str, whole: bool = False) -> None:
        """Begin a span; inside a ``whole`` span, its time counts for the whole."""
        outer = self._stack[-1]
        if outer[1]:
            self._stack.append(outer)
            return
        self._stack.append((name, whole))
        self.counts[name] = self.counts.get(name, 0) + 1
        if name != outer[0]:
            self._mark()

    def leave(self) -> None:
        """End the innermost span."""
        name = self._stack.pop()[0]
        if name != self._stack[-1][0]:
            self._mark()

    def _mark(self) -> None:
        self._marks.append((self._stack[-1][0], [clock.stamp() for clock in self._clocks]))

    def times(self) -> list[dict[str, float]]:
        """Return for each clock the seconds of every span since the timeline began, without those of inner spans."""
        self._mark()
        totals: list[dict[str, float]] = [{} for _ in self._clocks]
        for (name, began), (_, ended) in zip(self._marks, self._marks[1:]):
            for total, clock, a, b in zip(totals, self._clocks, began, ended):
                total[name] = total.get(name, 0.0) + clock.seconds(a, b)
        return totals


class Profiler:
    """Records spans in a timeline; on a CUDA device also as NVTX ranges, for Nsight Systems."""

    def __init__(self, timeline: Timeline, device: torch.device) -> None:
        self._timeline, self._cuda = timeline, device.type == "cuda"
        self._thread = threading.get_ident()

    def span(self, name: str, whole: bool = False) -> AbstractContextManager[None]:
        if threading.get_ident() != self._thread or (self._cuda and torch.cuda.is_current_stream_capturing()):
            return _OFF
        return _Span(name, whole, self._timeline, self._cuda)

    def __enter__(self) -> Profiler:
        global _active
        if _active is not None:
            raise RuntimeError("a profiler is already active")
        _active = self
        return self

    def __exit__(self, *error: object) -> None:
        global _active
        _active = None


class _Span:
    __slots__ = ("_cuda", "_name", "_timeline", "_whole")

    def __init__(self, name: str, whole: bool, timeline: Timeline, cuda: bool) -> None:
        self._name, self._whole, self._timeline, self._cuda = name, whole, timeline, cuda

    def __enter__(self) -> None:
        self._timeline.enter(self._name, self._whole)
        if self._cuda:
            torch.cuda.nvtx.range_push(self._name)

    def __exit__(self, *error: object) -> None:
        if self._cuda:
            torch.cuda.nvtx.range_pop()
        self._timeline.leave()
