"""The task's own fitness of a step, for all environments."""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from envcoder_bench.core.graph_capture import WARM_UPS, capturing, syncs_raise
from envcoder_bench.tasks.base import Task


class TaskFitness:
    """Scores a step by the task's fitness, which depends only on the state.

    A fitness can be dozens of launches on a CUDA device, where the other parts of an evaluation's step are captured:
    there it is captured, too. One that cannot be captured is called.

    Args:
        task: the task.
        state: the task's state, ``progress_buf`` and ``actions`` of all environments, in fixed memory.
        views: the same for each group.
    """

    def __init__(self, task: Task, state: dict[str, Tensor], views: Sequence[dict[str, Tensor]]) -> None:
        self._task, self._state, self._views = task, state, views
        self._score: Callable[[], Tensor] | None = None

    def __call__(self) -> Tensor:
        """Return the fitness of every environment, ``(num_envs,)``; on CUDA the next call overwrites it."""
        if self._task.device.type == "cpu":
            # group by group: a vectorized function may round differently at other positions of a longer tensor, and a
            # candidate's fitness must be bitwise independent of its neighbours
            return torch.cat([self._task.fitness(view) for view in self._views])
        if self._score is None:
            self._score = self._captured()
        return self._score()

    def _captured(self) -> Callable[[], Tensor]:
        """Return a function that replays a graph of the fitness, or calls it if it cannot be captured."""

        def call() -> Tensor:
            return self._task.fitness(self._state)

        graph, device = torch.cuda.CUDAGraph(), self._task.device
        with torch.cuda.device(device), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # a fitness can be a tensor of the state
            try:
                with torch.cuda.stream(torch.cuda.current_stream()):  # a failed capture does not restore it
                    for _ in range(WARM_UPS):
                        call()
                    with syncs_raise():
                        call()
                    with capturing(graph, device, None, "thread_local"):
                        result = call()
            except Exception:  # an error of the fitness itself is raised by the call
                torch.cuda.synchronize()
                with capturing(torch.cuda.CUDAGraph(), device):
                    pass  # a failed capture leaves torch's generator as if it went on; a complete one ends it
                return call

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay
