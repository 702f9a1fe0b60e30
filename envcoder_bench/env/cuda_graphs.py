"""Capture of all groups' functions of one kind, and of the task's fitness, in a CUDA graph.

Functions that cannot be captured are detected and called.

The time of hundreds of small functions is dominated by kernel launches. A graph launches them at once, on several
streams, so that they overlap: 250 rewards of 30 operations take 2 ms instead of 186 ms.
"""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from envcoder_bench.core.graph_capture import WARM_UPS, capturing, end_failed_capture, syncs_raise
from envcoder_bench.env.stages import Call
from envcoder_bench.shaping.contract import CandidateFunction, CandidateWarning, Fault
from envcoder_bench.shaping.faults import FAULTS, line_in, one_line
from envcoder_bench.tasks.base import Task

NUM_STREAMS = 16


class GraphBuilder:
    """Captures the graphs of one device. They share a memory pool, so that no two may run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._streams = [torch.cuda.Stream(device) for _ in range(NUM_STREAMS)]
        self._pool = torch.cuda.graph_pool_handle()

    def build(
        self,
        calls: Sequence[Call],
        launches: Sequence[Callable[[], None]],
        attempt: Callable[[Call], bool],
        before: Callable[[], None],
        after: Callable[[], None],
        step: Tensor,
    ) -> tuple[list[Call], Callable[[], None]]:
        """Split ``calls`` into those that must run eagerly at every step, and a graph of the others and ``after``.

        Args:
            launches: launches of kernels, which are captured, too.
            attempt: makes a call and handles its faults; returns False if the group is dead.
            before: called in the graph before all calls, unless some calls run eagerly, before the graph.
            after: called in the graph after all calls.
            step: 0-d int64 tensor on the device, from which captured calls read the step.

        Returns:
            The eager calls, each with a warning that names its line, and a function that replays the graph.
        """
        eager: list[Call] = []
        captured: list[Call] = []
        with torch.cuda.device(self._device):
            for i, call in enumerate(calls):
                # each call is tried on the stream on which it is captured
                reason = _known_reason(call.function)
                if reason is None:
                    alive, reason = self._try(call, attempt, step, self._streams[i % NUM_STREAMS])
                    if not alive:
                        continue
                if reason is None:
                    captured.append(call)
                else:
                    eager.append(call)
                    _warn(call.function, *reason)
            after()
            graph = self._capture_all(captured, eager, launches, before, after, step)
        return eager, graph.replay

    def _try(
        self, call: Call, attempt: Callable[[Call], bool], step: Tensor, stream: torch.cuda.Stream
    ) -> tuple[bool, tuple[int | None, str] | None]:
        """Warm up a call on its stream; return (alive, why it cannot be captured, if it waits for the device)."""
        current = torch.cuda.current_stream()
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                if not all(attempt(call) for _ in range(WARM_UPS)):
                    return False, None
                # a sync with the host cannot be captured
                with syncs_raise():
                    call(step)
        except FAULTS as error:
            if call.function is None:
                raise
            waits = "waits for the device (.item(), if on a tensor, a mask as index, a new tensor from Python numbers)"
            reason = waits if "synchronizing" in str(error) else f"raised {one_line(error)}"
            return True, (line_in(error, call.function.file), reason)
        finally:
            current.wait_stream(stream)
        return True, None

    def _capture_all(
        self,
        captured: list[Call],
        eager: list[Call],
        launches: Sequence[Callable[[], None]],
        before: Callable[[], None],
        after: Callable[[], None],
        step: Tensor,
    ) -> torch.cuda.CUDAGraph:
        """Capture the calls; if one breaks the capture, move it to ``eager`` and try again."""
        while True:
            at: list[Call] = []
            try:
                # a failed capture does not restore the current stream
                with torch.cuda.stream(torch.cuda.current_stream()):
                    return self._capture(captured, launches, _nothing if eager else before, after, step, at)
            except FAULTS as error:
                if not at or at[-1].function is None:
                    raise
                cause = error.__context__ or error  # the error that broke the capture, not that of ending it
                captured.remove(at[-1])
                eager.append(at[-1])
                _warn(at[-1].function, line_in(cause, at[-1].function.file), f"raised {one_line(cause)} in a capture")
                torch.cuda.synchronize(self._device)
                self._pool = torch.cuda.graph_pool_handle()  # the broken capture still uses the old pool
                self._streams = [torch.cuda.Stream(self._device) for _ in range(NUM_STREAMS)]

    def _capture(
        self,
        calls: Sequence[Call],
        launches: Sequence[Callable[[], None]],
        before: Callable[[], None],
        after: Callable[[], None],
        step: Tensor,
        at: list[Call],
    ) -> torch.cuda.CUDAGraph:
        """Capture ``before``, all calls on several streams, then ``after``.

        The last entry of ``at`` is the call being captured.
        """
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, self._device, self._pool, "thread_local"):
            main = torch.cuda.current_stream()
            before()
            # calls of different candidates are independent: on streams of their own they run side by side
            branches = self._streams[: max(len(calls), len(launches))]
            for branch in branches:
                branch.wait_stream(main)
            for i, call in enumerate(calls):
                at.append(call)
                with torch.cuda.stream(branches[i % NUM_STREAMS]):
                    call(step)
            at.clear()
            for i, launch in enumerate(launches):
                with torch.cuda.stream(branches[i % NUM_STREAMS]):
                    launch()
            for branch in branches:
                main.wait_stream(branch)
            after()
        return graph


def _nothing() -> None:
    """Do nothing, where ``before`` has run already."""


def _known_reason(function: CandidateFunction | None) -> tuple[int | None, str] | None:
    if function is None:
        return None
    if function.generator_line is not None:
        return function.generator_line, "may draw from a library's generator (torch.rand can be captured)"
    if function.stateful_line is not None:
        return function.stateful_line, "may keep something for its next call"
    return None


def _warn(function: CandidateFunction | None, line: int | None, reason: str) -> None:
    if function is not None:
        message = f"cannot be captured in a CUDA graph and runs slowly: it {reason}"
        fault = Fault(message, function.file, line or function.line, function.type)
        warnings.warn(CandidateWarning(fault), stacklevel=2)


class TaskFitness:
    """Scores a step by the task's fitness, which depends only on the state.

    A fitness can be dozens of launches on a CUDA device. It is captured there, as the other parts of an evaluation's
    step, or called if it cannot be captured.

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
        with torch.cuda.device(device):
            try:
                with torch.cuda.stream(torch.cuda.current_stream()):  # a failed capture does not restore it
                    for _ in range(WARM_UPS):
                        call()
                    with syncs_raise():
                        call()
                    with capturing(graph, device, None, "thread_local"):
                        result = call()
            except Exception:  # an error of the fitness itself is raised by the call
                end_failed_capture(device)
                return call

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay
