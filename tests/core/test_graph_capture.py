"""Captures on the device of their tensors, and pauses of garbage collection, which would break a capture."""

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch

from envcoder_bench.core.graph_capture import capturing, collection_paused
from envcoder_bench.core.triton_import import Kernel
from envcoder_bench.sim import make_simulator
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.trainers.blocks import CapturedFunction
from envcoder_bench.trainers.ppo import linear

TWO = [pytest.mark.cuda, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("numbers", [(0,), pytest.param((1, 0, 1), marks=TWO), pytest.param((0, 1), marks=TWO)])
def test_graphs_of_each_device(numbers: tuple[int, ...]) -> None:
    for number in numbers:
        device = torch.device("cuda", number)
        x, graph = torch.zeros(8, device=device), torch.cuda.CUDAGraph()
        with capturing(graph, device):
            x += 1.0
        assert x.tolist() == [0.0] * 8  # nothing is computed meanwhile
        for _ in range(3):
            graph.replay()
        assert x.tolist() == [3.0] * 8
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("number", [pytest.param(0, marks=TWO), pytest.param(1, marks=TWO)])
def test_kernels_run_where_their_tensors_are(number: int) -> None:
    for current in (0, 1):
        with torch.cuda.device(current):
            x = torch.randn(3, 70, 52, device=f"cuda:{number}")
            out = torch.empty(3, 52, 70, device=x.device)
            linear.transpose(x, out)
            assert torch.equal(out, x.mT)
            assert torch.cuda.current_device() == current


def test_a_kernel_is_launched_with_its_grid_and_arguments() -> None:
    launched = []

    class Compiled:
        def __getitem__(self, grid: tuple[int, ...]) -> object:
            return lambda *args, **options: launched.append((grid, args, options))

    x = torch.zeros(2)
    Kernel(Compiled())[3, 4](x, 5, BLOCK=6)
    assert launched == [((3, 4), (x, 5), {"BLOCK": 6})]


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
            path = find_spec("Cartpole").folder / "cartpole.xml"
            sim = make_simulator("mujoco_warp", path, 4, 0.02, 1, "cuda")
            sim.step(torch.zeros(4, 1, device="cuda"))
    gc.collect()
    assert len(dead) >= 2 and not any(ref() for ref in dead)
