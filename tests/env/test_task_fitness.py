"""The task's fitness: group by group on a CPU, captured on CUDA, and called where it cannot be captured."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from envcoder_bench.core.graph_capture import WARM_UPS
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.cuda_graphs import TaskFitness

LAYOUT = GroupLayout(3, 4)
on_cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def make(function: Callable[[dict[str, Tensor]], Tensor], device: str) -> tuple[TaskFitness, dict[str, Tensor], list]:
    """Return the fitness of a task, its state, and the numbers of environments of the calls of its function."""
    state = {"x": torch.rand(LAYOUT.num_envs, 2, device=device), "actions": torch.rand(LAYOUT.num_envs, device=device)}
    called: list[int] = []

    def fitness(state: dict[str, Tensor]) -> Tensor:
        called.append(len(state["x"]))
        return function(state)

    task: Any = SimpleNamespace(device=torch.device(device), fitness=fitness)
    return TaskFitness(task, state, LAYOUT.views(state)), state, called


def score(state: dict[str, Tensor]) -> Tensor:
    return (state["x"][:, 0] + 2.0 * state["actions"]) * state["x"][:, 1]


def waiting(state: dict[str, Tensor]) -> Tensor:
    return score(state) if bool((state["x"] > 0.5).any()) else -score(state)


def waiting_unseen(state: dict[str, Tensor]) -> Tensor:
    torch.cuda.synchronize()  # torch does not notice before the capture
    return score(state)


def given(state: dict[str, Tensor]) -> Tensor:
    return state["actions"]


def wrong(state: dict[str, Tensor]) -> Tensor:
    return state["y"]


def test_each_group_is_scored_by_itself_on_a_cpu() -> None:
    fitness, state, called = make(score, "cpu")
    for _ in range(2):
        state["x"].uniform_()
        assert torch.equal(fitness(), score(state))
    assert called == [4] * 6


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_cuda)])
def test_errors_of_a_fitness_are_raised(device: str) -> None:
    fitness, *_ = make(wrong, device)
    for _ in range(2):
        with pytest.raises(KeyError, match="y"):
            fitness()


FIRST = WARM_UPS + 2  # calls before the first result: with waits that raise, and in the capture
EAGER = FIRST + 4


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        pytest.param(score, FIRST, marks=on_cuda),
        pytest.param(given, FIRST, marks=on_cuda),
        pytest.param(waiting, EAGER - 1, marks=on_cuda),  # not captured
        pytest.param(waiting_unseen, EAGER, marks=on_cuda),
    ],
)
@pytest.mark.filterwarnings("error:The CUDA Graph is empty")
def test_fitness_follows_the_state_on_cuda(function: Callable[..., Tensor], calls: int) -> None:
    fitness, state, called = make(function, "cuda")
    count = 0
    for scale in (1.0, 0.1, 1.0, 0.4):
        state["x"].uniform_().mul_(scale)
        state["actions"].normal_()
        called.clear()
        mine = fitness().clone()
        count += len(called)
        assert torch.equal(mine, function(state))
    assert count == calls  # a graph is replayed, and what waits for the device is called each time
    assert torch.rand(3, device="cuda").shape == (3,)  # the generator is in order
