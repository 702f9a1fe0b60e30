"""The parts of a step between MuJoCo Warp's own graphs, as CUDA graphs.

mjlab's code for a step of a legged robot is a thousand small launches, and takes several times the time of the physics.
A part runs as it is in the first steps. Then it is captured, if it does not wait for the device, reads no counter of
steps, and changes no number on the host. What mjlab's objects keep between steps stays in the same memory: where a part
replaces a tensor, the graph copies the new one into the old one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from envcoder_bench.core.graph_capture import WARM_UPS, capturing
from envcoder_bench.tasks.mjlab_tasks.checkpoint import assign, held
from envcoder_bench.tasks.mjlab_tasks.on_device import OnDevice

T = TypeVar("T")
Call = Callable[[], None]
Capture = Callable[[Call], Call]


class Parts:
    """Runs the parts of a step.

    Args:
        capture: captures a call, and returns a function that replays it; None: parts run as they are.
        world, blocks: of the task.
    """

    def __init__(self, capture: Capture | None, world: Any, blocks: Sequence[Any]) -> None:
        self._capture, self._world, self._blocks = capture, world, blocks
        self._constants: dict[Any, Tensor] = {}
        self._reasons: dict[str, str] = {}  # of the parts that cannot be captured
        self._regular = False
        self._steps = 0
        self.drop()

    @property
    def captures(self) -> bool:
        return self._capture is not None

    def drop(self) -> None:
        """Drop the graphs, because numbers in them have changed; the next step captures again."""
        self._graphs: dict[str, Call] = {}
        self._steps = min(self._steps, WARM_UPS)
        self._regular = False

    def begin(self) -> None:
        """Begin a step; parts outside of one, such as those of the first reset, run as they are."""
        self._regular = self.captures

    def end(self) -> None:
        """End a step."""
        if self._regular:
            self._steps += 1
            if self._graphs:
                self._world.forget()
        self._regular = False

    def __call__(self, name: str, call: Call, masked: bool = False) -> None:
        """Run a part.

        Args:
            name: its name; the same one in each step.
            masked: see ``OnDevice``.
        """
        if not self.captures:
            call()
            return

        def on_device() -> None:
            with OnDevice(self._constants, masked):
                call()

        if not self._regular or self._steps < WARM_UPS - 1:
            self._in_place(on_device)
        elif self._steps == WARM_UPS - 1:
            self._watched(name, on_device)
        elif name in self._graphs or (name not in self._reasons and self._captured(name, on_device)):
            self._graphs[name]()
        else:
            self._world.forget()
            self._in_place(on_device)

    def _in_place(self, call: Call) -> None:
        """Run a part, and keep the tensors that it replaces in their memory, which graphs read."""
        before = self._tensors()
        call()
        self._keep(before)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Let the code inside the block replace tensors."""
        before = self._tensors() if self.captures else {}
        yield
        if self.captures:
            after = self._tensors()
            if after.keys() != before.keys() or any(x is not before[path][0] for path, (x, _) in after.items()):
                self.drop()
                self._steps = 0

    def _tensors(self) -> dict[str, tuple[Any, Any]]:
        rows = held(self._world, self._blocks)
        return {path: (x, owner) for path, x, owner in rows if isinstance(x, Tensor)}

    def _keep(self, before: dict[str, tuple[Any, Any]]) -> None:
        """Copy replaced tensors into those of before."""
        replaced = []
        for path, (new, owner) in self._tensors().items():
            old = before[path][0] if path in before else new
            if new is old or new.shape != old.shape or new.dtype != old.dtype:
                continue
            if new.data_ptr() != old.data_ptr() or new.stride() != old.stride():
                replaced.append((owner, old, new))
            else:
                assign(owner, old)
        # a new tensor may be an old one of another name
        memory = {old.untyped_storage().data_ptr() for _, old, _ in replaced}
        copies = [x.clone() if x.untyped_storage().data_ptr() in memory else x for _, _, x in replaced]
        for (owner, old, _), new in zip(replaced, copies):
            old.copy_(new)
            assign(owner, old)

    def _watched(self, name: str, call: Call) -> None:
        """Run a part, and note whether it can be captured."""
        numbers, reads, known = self._numbers(), self._world.reads, set(self._tensors())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._watch_syncs(True)
            try:
                self._in_place(call)
            finally:
                self._watch_syncs(False)
        waits = [w for w in caught if "called a synchronizing" in str(w.message)]
        changed = [path for path, x in self._numbers().items() if numbers.get(path, x) != x]
        if waits:
            self._refuse(name, f"waits for the device in {waits[0].filename}:{waits[0].lineno}")
        elif self._world.reads != reads:
            self._refuse(name, "reads the counter of steps, or runs the simulation")
        elif changed:
            self._refuse(name, f"changes what it keeps on the host: {changed[0]}")
        elif set(self._tensors()) != known:
            self._refuse(name, "creates a tensor")

    def _numbers(self) -> dict[str, Any]:
        """Return the numbers on the host, and which objects the modules of candidates' terms hold."""
        numbers = {path: x for path, x, _ in held(self._world, self._blocks, numbers=True) if not isinstance(x, Tensor)}
        for block in self._blocks:
            for term in (*block.rewards.terms, *block.ends.terms):
                if term.foreign:
                    names = getattr(term.cfg.func, "__globals__", {})
                    numbers.update({f"{term.section}/{term.name}/{name}": id(x) for name, x in names.items()})
        return numbers

    @staticmethod
    def _watch_syncs(on: bool) -> None:
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode(1 if on else 0)

    def _refuse(self, name: str, reason: str) -> None:
        self._reasons[name] = reason
        message = f"mjlab: the part '{name}' of a step is not captured in a CUDA graph and runs slowly: it {reason}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _captured(self, name: str, call: Call) -> bool:
        """Capture a part; return whether that was possible. Nothing of it has run then."""
        assert self._capture is not None
        before = self._tensors()
        try:
            self._graphs[name] = self._capture(lambda: self._in_place(call))
        except Exception as error:  # of whatever kind: the part then runs as it is, and raises its own errors
            for x, owner in before.values():
                assign(owner, x)
            self._refuse(name, f"raises in a capture: {' '.join(str(error).split())[:200]}")
            return False
        return True


def cuda_capture(device: torch.device) -> Capture:
    """Return what captures calls as graphs of a device, in one pool of memory."""
    pool = torch.cuda.graph_pool_handle()

    def capture(call: Call) -> Call:
        nonlocal pool
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(torch.cuda.current_stream()), capturing(graph, device, pool, "thread_local"):
                call()
        except Exception:
            torch.cuda.synchronize(device)
            pool = torch.cuda.graph_pool_handle()  # the broken capture still uses the old one
            with capturing(torch.cuda.CUDAGraph(), device):
                pass  # see TaskFitness
            raise
        return graph.replay

    return capture


def in_capture() -> bool:
    """Return whether a graph is being captured, where an error is not that of a term."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


_BRANCHES = 16
_streams: list[torch.cuda.Stream] = []


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return the results of calls that do not depend on each other; in a graph their kernels overlap."""
    if not in_capture():
        return [call() for call in calls]
    main = torch.cuda.current_stream()
    if not _streams or _streams[0].device != main.device:
        _streams[:] = [torch.cuda.Stream(main.device) for _ in range(_BRANCHES)]
    branches = _streams[: len(calls)]
    for branch in branches:
        branch.wait_stream(main)
    results = []
    for k, call in enumerate(calls):
        with torch.cuda.stream(branches[k % _BRANCHES]):
            results.append(call())
    for branch in branches:
        main.wait_stream(branch)
    return results
