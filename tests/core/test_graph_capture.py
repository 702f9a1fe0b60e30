"""Captures and kernels on the device of their tensors, whichever is current; requires CUDA."""

import pytest
import torch

from envcoder_bench.core.graph_capture import capturing
from envcoder_bench.core.triton_import import Kernel
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
