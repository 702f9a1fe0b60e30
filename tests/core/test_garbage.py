"""While garbage collection is paused, reference cycles are kept; a CUDA graph among them would break a capture."""

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch

from envcoder_bench.core.graph_capture import collection_paused
from envcoder_bench.sim import make_simulator
from envcoder_bench.tasks.registry import get_spec
from envcoder_bench.trainers.ppo.capture import CapturedFunction

CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


class Holder:
    """An object in a reference cycle, which only the collector frees."""

    def __init__(self, held=None):
        self.held, self.itself = held, self


@contextmanager
def eager_collector():
    """Collect at nearly every new object."""
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)


def test_cycles_are_freed_after_the_pause_and_not_within():
    with eager_collector():
        with collection_paused():
            dead = weakref.ref(Holder())
            kept = [[] for _ in range(1000)]
            assert dead() is not None
        kept += [[] for _ in range(1000)]
        assert dead() is None


@pytest.mark.parametrize("collecting", [True, False])
def test_state_of_the_collector_is_restored_after_an_error(collecting):
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with pytest.raises(KeyError), collection_paused(), collection_paused():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()


def captured(count):
    """Return a CUDA graph."""
    x, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x += count
    return graph


@pytest.mark.parametrize("what", [pytest.param(w, marks=CUDA) for w in ("function", "simulator")])
def test_captures_succeed_if_graphs_become_unreachable_within(what, monkeypatch):
    graphs, dead = [captured(k) for k in range(4)], []

    def litter():
        dead.append(weakref.ref(Holder(graphs.pop())))
        [[] for _ in range(1000)]

    with eager_collector():
        if what == "function":
            x = torch.zeros(4, device="cuda")
            call = CapturedFunction(lambda: (litter(), x.add_(1)), x.device, torch.cuda.graph_pool_handle())
            call()
            call()
            assert x.tolist() == [2.0] * 4
        else:
            from envcoder_bench.sim.mujoco_warp import MujocoWarp

            advance = MujocoWarp._advance
            monkeypatch.setattr(MujocoWarp, "_advance", lambda self: (litter(), advance(self)))
            path = get_spec("Cartpole").folder / "cartpole.xml"
            sim = make_simulator("mujoco_warp", path, 4, 0.02, 1, "cuda")
            sim.step(torch.zeros(4, 1, device="cuda"))
    gc.collect()
    assert len(dead) >= 2 and not any(ref() for ref in dead)
