"""The memory of CUDA graphs of a step: a pool ends with its last graph."""

import itertools
from contextlib import contextmanager, nullcontext

import pytest
import torch

from envcoder_bench.sources.term_tasks.graphs import parts


class Graph:
    """Stands for a ``torch.cuda.CUDAGraph``."""

    def replay(self):
        pass


@pytest.fixture
def pools(monkeypatch):
    """The pools of the captures so far."""
    used, numbers = [], itertools.count()

    @contextmanager
    def capturing(graph, device, pool=None, mode="global"):
        used.append(pool)
        yield

    monkeypatch.setattr(parts, "capturing", capturing)
    monkeypatch.setattr(parts, "end_failed_capture", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(numbers))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    return used


def test_graphs_share_a_pool_and_after_the_last_one_is_dropped_there_is_a_new_one(pools):
    capture = parts.cuda_capture(torch.device("cpu"))
    graphs = [capture(lambda: None), capture(lambda: None)]
    assert pools[0] == pools[1]
    del graphs[0]
    graphs.append(capture(lambda: None))
    assert pools[2] == pools[1]
    graphs.clear()
    graphs += [capture(lambda: None), capture(lambda: None)]
    assert pools[3] == pools[4] != pools[2]


def test_a_failed_capture_leaves_its_pool_behind(pools):
    capture = parts.cuda_capture(torch.device("cpu"))
    kept = capture(lambda: None)
    with pytest.raises(ZeroDivisionError):
        capture(lambda: 1 // 0)
    again = capture(lambda: None)
    assert pools[1] == pools[0] != pools[2] and kept != again
