"""Spans: exclusive times by an invented clock, what they cost when nothing is profiled, and the trace."""

import threading

import pytest
import torch

from envcoder_bench.core import profiling
from envcoder_bench.core.profiling import REST, CudaClock, HostClock, Profiler, Timeline, span

CPU = torch.device("cpu")


class Clock:
    """Goes on only where the test says so."""

    now = 0.0

    def stamp(self):
        return self.now

    def seconds(self, began, ended):
        return ended - began


@pytest.fixture
def clock():
    return Clock()


def test_time_is_assigned_to_the_innermost_span(clock):
    timeline = Timeline([clock])
    with Profiler(timeline, CPU):
        clock.now += 1
        with span("outer"):
            clock.now += 10
            with span("inner"):
                clock.now += 100
                with span("outer"):
                    clock.now += 1_000
                clock.now += 100
            clock.now += 10
            with span("outer"):
                clock.now += 10_000
        clock.now += 1
    assert timeline.times() == [{REST: 2, "outer": 11_020, "inner": 200}]
    assert timeline.counts == {"outer": 3, "inner": 1}


def test_whole_span_includes_nested_spans(clock):
    timeline = Timeline([clock])
    with Profiler(timeline, CPU):
        with span("evaluation", whole=True):
            clock.now += 1
            with span("physics"):
                clock.now += 1
                with span("reward"):
                    clock.now += 1
            clock.now += 1
        with span("physics"):
            clock.now += 7
    assert timeline.times() == [{REST: 0, "evaluation": 4, "physics": 7}]
    assert timeline.counts == {"evaluation": 1, "physics": 1}


def test_exception_closes_its_spans(clock):
    timeline = Timeline([clock])
    with pytest.raises(ValueError, match="inside"), Profiler(timeline, CPU), span("outer"), span("inner"):
        clock.now += 1
        raise ValueError("inside")
    clock.now += 5
    assert timeline.times() == [{REST: 5, "inner": 1, "outer": 0}]


def test_each_clock_has_its_own_times(clock):
    twice = Clock()
    timeline = Timeline([clock, twice])
    with Profiler(timeline, CPU), span("physics"):
        clock.now += 1
        twice.now += 2
    assert [times["physics"] for times in timeline.times()] == [1, 2]


def test_spans_are_shared_without_an_active_profile(clock):
    assert span("physics") is span("reward")
    with Profiler(Timeline([clock]), CPU):
        assert span("physics") is not span("physics")
    assert span("physics") is span("reward")


def test_second_profile_is_refused(clock):
    with Profiler(Timeline([clock]), CPU):
        with pytest.raises(RuntimeError, match="already"), Profiler(Timeline([clock]), CPU):
            pass
        assert profiling._active is not None


def test_other_threads_are_not_measured(clock):
    timeline = Timeline([clock])

    def work():
        with span("stranger"):
            clock.now += 1

    with Profiler(timeline, CPU), span("update"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert timeline.times() == [{REST: 0, "update": 1}]


def test_host_clock_is_in_seconds():
    clock = HostClock()
    timeline = Timeline([clock])
    began = clock.stamp()
    with Profiler(timeline, CPU), span("work"):
        torch.ones(100).sum()
    (times,) = timeline.times()
    assert 0 < times["work"] <= clock.stamp() - began


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_replay_time_is_assigned_to_its_span_without_synchronization():
    device = torch.device("cuda")
    x = torch.randn(2048, 2048, device=device)
    torch.mm(x, x)
    graph = torch.cuda.CUDAGraph()
    timeline = Timeline([CudaClock(device), HostClock()])
    with Profiler(timeline, device):
        with torch.cuda.graph(graph), span("capture"):  # an event in a capture could not be read
            for _ in range(50):
                y = torch.mm(x, x)
        graph.replay()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with span("physics"):
                graph.replay()
            with span("reward"):
                y = y + 1
        finally:
            torch.cuda.set_sync_debug_mode("default")
    on_device, on_host = timeline.times()
    assert "capture" not in timeline.counts
    # 50 products of 2048 x 2048 matrices against one sum; the host only launches them
    assert on_device["physics"] > 3 * on_device["reward"] > 0
    assert on_device["physics"] > 3 * on_host["physics"] > 0
