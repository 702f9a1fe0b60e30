"""The parts of a step between MuJoCo Warp's own graphs, as CUDA graphs.

A framework's code for a step of a legged robot is a thousand small launches, and takes several times the time of the
physics.
A part runs as it is in the first steps. Then it is captured, if it does not wait for the device, reads no counter of
steps, and changes no number on the host. A term that does is ``eager`` from then on: it is called between two parts,
which are captured. What its objects keep between steps stays in the same memory: where a part replaces a tensor,
the graph copies the new one into the old one.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.graph_capture import WARM_UPS, capturing, end_failed_capture
from envcoder_bench.sources.term_tasks.checkpoint import assign, held, held_by
from envcoder_bench.sources.term_tasks.graphs.on_device import OnDevice

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
        self._reasons: dict[str, str] = {}  # why parts are not captured, by their name
        self._regular = self.capturing = self._watches_again = False
        self._caught: list[Any] | None = None  # warnings of a part that is watched
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
            self._steps += not self._watches_again
            self._watches_again = False
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
            self._world.replayed(name)
        else:
            self._world.forget()
            self._in_place(on_device)

    def between(self, call: Call) -> None:
        """Run what no graph can contain, between two parts."""
        self._world.forget()  # sensors' data that are in a graph's memory
        self._in_place(call)
        self._world.forget()

    def _in_place(self, call: Call) -> None:
        """Run a part, and keep the tensors that it replaces in their memory, which graphs read."""
        before = self._tensors()
        call()
        self._keep(before)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Let the code inside the block replace tensors, and set what graphs have read on the host."""
        self._regular = False  # the step before may have been the last of an evaluation, which does not end
        before = self._held() if self.captures else {}
        yield
        if self.captures:
            after = self._held()
            if after.keys() != before.keys() or any(_differ(x, before[path]) for path, x in after.items()):
                self.drop()
                self._steps = 0

    def _held(self) -> dict[str, Any]:
        return {path: x for path, x, _ in held(self._world, self._blocks, plain=True)}

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
        with warnings.catch_warnings(record=True) as self._caught:
            warnings.simplefilter("always")
            self._watch_syncs(True)
            before, eager = self._kept(), len(self._reasons)
            try:
                self._in_place(call)
            finally:
                self._watch_syncs(False)
            reason = self._reason(before, self._kept())
        self._caught = None
        if len(self._reasons) > eager:
            self._watches_again = True  # without the terms that are eager now
        elif reason:
            self._refuse(name, f"the part '{name}' of a step", reason)

    @contextmanager
    def noting(self, term: Any) -> Iterator[None]:
        """Note whether the term that the block evaluates can be captured; otherwise it is ``eager`` from now on."""
        if self._caught is None and not self.capturing:
            yield
            return
        before, reason = self._kept(term), ""
        try:
            yield
            reason = self._reason(before, self._kept(term)) if self._caught is not None else ""
        except Exception as error:
            reason = _in_a_capture(error) if self.capturing else ""
            raise
        finally:
            if reason:
                term.eager = True
                self._refuse(f"{term.section}/{term.name}", f"the term '{term.name}'", reason)

    def _kept(self, term: Any = None) -> tuple[int, int, dict[str, Any], set[str]]:
        """Return waits and reads so far, and the numbers and the tensors' paths that a term, or everything, keeps."""
        waits = sum("called a synchronizing" in str(w.message) for w in self._caught or ())
        everything = held(self._world, self._blocks, plain=True) if term is None else held_by(term.func)
        rows = [(path, x) for path, x, _ in everything]
        numbers = {path: x for path, x in rows if not isinstance(x, Tensor)}
        # which objects the modules of candidates' terms hold
        terms = [term] if term else [t for block in self._blocks for t in (*block.rewards.terms, *block.ends.terms)]
        for used in terms:
            if used.foreign:
                names = getattr(used.func, "__globals__", {})
                numbers.update({f"{used.section}/{used.name}/{name}": id(x) for name, x in names.items()})
        return waits, self._world.reads, numbers, {path for path, x in rows if isinstance(x, Tensor)}

    def _reason(self, before: Any, after: Any) -> str:
        """Return why what was run between two ``_kept`` cannot be captured; empty if it can."""
        changed = [path for path, x in after[2].items() if _differ(x, before[2].get(path, x))]
        if after[0] > before[0]:
            waits = [w for w in self._caught or () if "called a synchronizing" in str(w.message)]
            return f"waits for the device in {waits[before[0]].filename}:{waits[before[0]].lineno}"
        if after[1] != before[1]:
            return "reads the counter of steps, or runs the simulation"
        if changed:
            return f"changes what it keeps on the host: {changed[0]}"
        return "creates a tensor" if after[3] != before[3] else ""

    @staticmethod
    def _watch_syncs(on: bool) -> None:
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode(1 if on else 0)

    def _refuse(self, name: str, what: str, reason: str) -> None:
        self._reasons[name] = reason
        message = f"{self._world.dialect.name}: {what} is not captured in a CUDA graph and runs slowly: it {reason}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _captured(self, name: str, call: Call) -> bool:
        """Capture a part; return whether that was possible. Nothing of it has run then."""
        assert self._capture is not None
        self._world.capturing(name)
        before, eager, self.capturing = self._tensors(), len(self._reasons), True
        try:
            self._graphs[name] = self._capture(lambda: self._in_place(call))
        except Exception as error:  # the part then runs as it is, and raises its own errors
            for x, owner in before.values():
                assign(owner, x)
            if len(self._reasons) == eager:  # otherwise it is a term, and the next step captures without it
                self._refuse(name, f"the part '{name}' of a step", _in_a_capture(error))
            return False
        finally:
            self.capturing = False
        return True


def _differ(x: Any, other: Any) -> bool:
    if isinstance(x, Tensor) or isinstance(other, Tensor):
        return x is not other
    if isinstance(x, np.ndarray) or isinstance(other, np.ndarray):
        return type(x) is not type(other) or not np.array_equal(x, other, equal_nan=x.dtype.kind == "f")
    return x != other


def _in_a_capture(error: Exception) -> str:
    return f"raises in a capture: {' '.join(str(error).split())[:200]}"


def cuda_capture(device: torch.device) -> Capture:
    """Return what captures calls as graphs of a device, in one pool of memory."""
    pool = torch.cuda.graph_pool_handle()
    graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = weakref.WeakSet()

    def capture(call: Call) -> Call:
        nonlocal pool
        if not graphs:  # a pool ends with its last graph, and tensors in it may still be alive
            pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(torch.cuda.current_stream()), capturing(graph, device, pool, "thread_local"):
                call()
        except Exception:
            end_failed_capture(device)
            pool = torch.cuda.graph_pool_handle()  # the broken capture still uses the old one
            raise
        graphs.add(graph)
        return graph.replay

    return capture


def in_turn(calls: list[Call]) -> Call:
    """Return a call of all."""

    def run() -> None:
        for call in calls:
            call()

    return run


def in_capture() -> bool:
    """Return whether a graph is being captured, where an error is not that of a term."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


_BRANCHES = 16
_streams: list[torch.cuda.Stream] = []


def side_by_side(calls: Sequence[Callable[[], T]], branches: bool = True) -> list[T]:
    """Return the results of calls that do not depend on each other; in a graph with ``branches`` kernels overlap."""
    if not (branches and in_capture()):
        return [call() for call in calls]
    main = torch.cuda.current_stream()
    if not _streams or _streams[0].device != main.device:
        _streams[:] = [torch.cuda.Stream(main.device) for _ in range(_BRANCHES)]
    streams = _streams[: len(calls)]
    for branch in streams:
        branch.wait_stream(main)
    results = []
    for k, call in enumerate(calls):
        with torch.cuda.stream(streams[k % _BRANCHES]):
            results.append(call())
    for branch in streams:
        main.wait_stream(branch)
    return results
