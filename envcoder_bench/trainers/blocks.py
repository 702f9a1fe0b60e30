"""Blocks of groups that learn together: how groups are divided, and how a block's work is run on its device."""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.graph_capture import capturing
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.trainers.base import Trainer
from mujoco_batches.process import usable_cpus


def cut_blocks(num_groups: int, largest: int) -> list[slice]:
    """Divide the groups into the fewest blocks of at most ``largest`` groups, of nearly equal size."""
    count = -(-num_groups // largest)
    bounds = [num_groups * i // count for i in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def cut_equal_blocks(keys: Sequence[object], largest: int) -> list[slice]:
    """Divide the groups into blocks as ``cut_blocks``, each of adjacent groups of equal keys."""
    slices: list[slice] = []
    for _, run in itertools.groupby(range(len(keys)), key=lambda group: keys[group]):
        groups = list(run)
        parts = cut_blocks(len(groups), largest)
        slices += [slice(groups[part.start], groups[part.stop - 1] + 1) for part in parts]
    return slices


def prepare_worker() -> None:
    """Configure a thread that updates learners."""
    torch.set_num_threads(1)
    # saturated units and idle weights give denormal numbers, which a CPU multiplies a hundred times slower
    torch.set_flush_denormal(True)


class CapturedFunction:
    """A function that runs eagerly the first time, is captured in a CUDA graph the second, and is replayed afterwards.

    An update has thousands of launches, which dominate its time.

    It may read and write only tensors in fixed memory, must not wait for the device, and must perform the same
    operations each time. Its result is overwritten by the next call. On a CPU it always runs eagerly.

    Args:
        function: a function without arguments.
        device: the device on which it runs.
        pool: ``torch.cuda.graph_pool_handle()``; graphs that never run concurrently can share one. None: never capture.
    """

    def __init__(self, function: Callable[[], Any], device: torch.device, pool: Any) -> None:
        self._function, self._device, self._pool = function, device, pool
        self._warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None

    def __call__(self) -> Any:
        if self._pool is None or not self._warm:
            self._warm = True
            return self._function()  # libraries create their handles and load kernels
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            with capturing(graph, self._device, self._pool):
                self._result = self._function()
            self._graph = graph  # after the capture: a failed one leaves nothing to replay
        self._graph.replay()
        return self._result


class BlockTrainer(Trainer):
    """A trainer of groups in blocks, which threads update on a CPU; on CUDA acting and policies are graphs.

    Attributes:
        blocks: each has the slice ``groups`` of its groups.
        epoch: number of iterations trained.
    """

    blocks: Sequence[Any]

    def _begin(self, layout: GroupLayout, device: torch.device, obs_width: int) -> None:
        """Set what does not depend on the blocks; ``obs_width`` is that of padded observations."""
        self._layout, self._device, self._obs_width = layout, device, obs_width
        on_cpu = device.type == "cpu"
        self._threads = ThreadPoolExecutor(usable_cpus(), initializer=prepare_worker) if on_cpu else None
        self._pool = None if on_cpu else torch.cuda.graph_pool_handle()
        self._policies: dict[GroupLayout, tuple[Tensor, CapturedFunction]] = {}  # inputs and policies on CUDA
        self.epoch = 0
        self._step = 0  # counts from 0 in each iteration
        self._device_step = torch.zeros(1, dtype=torch.int64, device=device)  # the same, which graphs read
        self._alive = [True] * layout.num_groups

    @abstractmethod
    def _act(self, t: Tensor | int) -> Tensor:
        """Sample the actions of step ``t`` for the observations seen last."""

    @abstractmethod
    def _mean_actions(self, layout: GroupLayout, obs: Tensor) -> Tensor:
        """Map observations ``(num_groups, n, obs_max)`` to mean actions ``(num_envs, act_max)``."""

    def _act_and_count(self) -> Tensor:
        actions = self._act(self._device_step)
        self._device_step.add_(1)
        return actions

    def _run(self, functions: Iterable[Callable[[], Any]]) -> list[Any]:
        """Call functions of different blocks, side by side on a CPU; return their results."""
        each = map if self._threads is None else self._threads.map
        return list(each(lambda function: function(), functions))

    def policy(self, layout: GroupLayout) -> Callable[[Tensor], Tensor]:
        if self._pool is None:
            return lambda obs: self._mean_actions(layout, layout.split(obs))
        if layout not in self._policies:
            seen = torch.zeros(layout.num_groups, layout.envs_per_group, self._obs_width, device=self._device)
            mean_actions = partial(self._mean_actions, layout, seen)
            self._policies[layout] = seen, CapturedFunction(mean_actions, self._device, self._pool)
        seen, mean_actions = self._policies[layout]

        def policy(obs: Tensor) -> Tensor:
            seen.copy_(layout.split(obs))
            return mean_actions()

        return policy

    def _find(self, group: int) -> tuple[Any, int]:
        """Return the block of a group, and the group's place in it."""
        block = next(block for block in self.blocks if group < block.groups.stop)
        return block, group - block.groups.start

    def _exported(self, model: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the content of a policy's file."""
        frame = self.epoch * self.horizon * self._layout.envs_per_group
        return {"model": model, "epoch": self.epoch, "frame": frame}
