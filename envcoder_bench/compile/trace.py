"""Trace the functions of a shaping on sample states."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from envcoder_bench.compile import (  # noqa: F401  they register rules
    indexing,
    linalg,
    pointwise,
    reductions,
    structure,
)
from envcoder_bench.compile.cache import FunctionCache
from envcoder_bench.compile.program import ACTION, Obstacle, Output, Program
from envcoder_bench.compile.recorder import Recorder
from envcoder_bench.compile.sizes import equal, for_any_size
from envcoder_bench.core import noise, stream
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.random_calls import FromStream
from envcoder_bench.shaping.contract import CandidateFunction, Shaping
from envcoder_bench.shaping.faults import FAULTS, one_line
from envcoder_bench.shaping.kinds import STAGES, VALUE, Kind
from envcoder_bench.shaping.outputs import returned
from envcoder_bench.shaping.shared import shared_settings
from envcoder_bench.shaping.state import StateDict, bind, own_constants
from envcoder_bench.tasks.contract import AnyTask

# Numbers of environments of the samples; other axes are unlikely to have these lengths. A function that may depend on
# the number is recorded with two sizes, and with all if the two programs differ. The first two are congruent only
# modulo 313; together the sizes have every remainder of division by 2 to 12, which distinguishes formulas.
ROWS = 131
SIZES = (ROWS, 444, 473, 514, 566, 821, 999, 1057, 1135, 1161, 1168, 1268, 1392, 1440, 1470, 1600)


Recorded = Program | Obstacle


class Untraced(NamedTuple):
    """A function that cannot be traced, and the reason."""

    function: CandidateFunction
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.function.file}:{self.line}: in {self.function.type}: {self.reason}"


class Memo:
    """Results shared by calls of ``trace`` on one state of one task.

    Attributes:
        results: results for functions that several shapings have in common.
        samples: sample states by device, number of environments and width of the action.
        cache: the cache on disk, or None.
        incomplete: whether programs may omit components of the reward that cannot be traced.
    """

    def __init__(self, cache: FunctionCache | None = None, incomplete: bool = False) -> None:
        self.results: dict[tuple[object, ...], tuple[CandidateFunction, Program | Untraced]] = {}
        self.samples: dict[tuple[str, int, int], SampleState] = {}
        self.cache, self.incomplete = cache, incomplete


def trace(
    shaping: Shaping,
    state: dict[str, Tensor],
    constants: dict[str, Tensor],
    task: AnyTask,
    memo: Memo | None = None,
) -> tuple[Shaping, list[Untraced]]:
    """Return a checked ``shaping`` with ``programs`` filled in, and the functions that cannot be traced.

    Args:
        state: per-environment tensors ``(n, ...)`` of a real state.
        memo: results of earlier calls with the same state; new ones are added.
    """
    memo = Memo() if memo is None else memo
    samples = _SampleStates(memo, state, constants, task, shaping.action_dim)
    programs: dict[str, Program] = {}
    refused: list[Untraced] = []
    functions = {stage: shaping.functions[stage] for stage in STAGES if stage in shaping.functions}
    # functions that keep values between calls, by file
    keepers = {f.file: f for f in functions.values() if f.stateful_line is not None}
    for stage, kind in STAGES.items():
        function = functions.get(stage)
        if function is None:
            # the task's default, such as its drives
            default = samples.first(lambda sample, kind=kind: sample.record_default(kind)) if kind.default else None
            if isinstance(default, Program):
                programs[stage] = default
            continue
        keeper = keepers.get(function.file)
        if function.program is not None:
            programs[stage] = function.program
        elif function.generator_line is not None:
            refused.append(Untraced(function, function.generator_line, "may draw from a library's generator"))
        elif keeper is not None:  # one function may read what another one of the file has stored
            line = keeper.stateful_line or keeper.line
            refused.append(Untraced(function, line, "may depend on what an earlier call has kept"))
        else:
            # record a function once for all shapings that have it
            components = shaping.components if kind.components else ()
            key = (id(function), shaping.action_dim, components)
            if key not in memo.results:
                memo.results[key] = (function, samples.program(kind, function, components))
            result = memo.results[key][1]
            if isinstance(result, Untraced):
                refused.append(result)
            else:
                programs[stage] = result
    return replace(shaping, programs=programs), refused


class _SampleStates(NamedTuple):
    """Records functions on the CPU, which is fast, and on the task's device if that fails."""

    memo: Memo
    state: dict[str, Tensor]
    constants: dict[str, Tensor]
    task: AnyTask
    action_dim: int

    def program(self, kind: Kind, function: CandidateFunction, components: tuple[str, ...]) -> Program | Untraced:
        """Return a function's program, or the reason why it cannot be traced."""
        cache, parts = self.memo.cache, (kind.stage, self.action_dim, components)
        saved = None if cache is None else cache.load(function, *parts)
        if saved is not None:
            return saved
        incomplete = self.memo.incomplete
        result = self.first(lambda sample: sample.record(kind, function, components, incomplete))
        if not isinstance(result, Program):
            return Untraced(function, result[0] or function.line, result[1])
        if cache is not None:
            cache.save(result, function, *parts)
        return result

    def first(self, record: Callable[[SampleState], Any]) -> Any:
        """Return the program from the first device on which recording succeeds, else the first device's obstacle."""
        results = []
        for device in dict.fromkeys(("cpu", str(self.task.device))):
            results.append(self._recorded(device, record))
            if isinstance(results[-1], Program):
                return results[-1]
        return results[0]

    def _recorded(self, device: str, record: Callable[[SampleState], Recorded]) -> Recorded:
        """Return a program for any number of environments; record with several sizes if it may depend on them."""
        programs: list[Program] = []
        for rows in SIZES:
            program = record(self._sample(device, rows))
            if not isinstance(program, Program):
                return program
            programs.append(program)
            if not program.sized or (len(programs) == 2 and equal(*programs)):
                return program
        return for_any_size(programs, SIZES)

    def _sample(self, device: str, rows: int) -> SampleState:
        key = (device, rows, self.action_dim)
        if key not in self.memo.samples:
            sample = SampleState(self.state, self.constants, self.task, torch.device(device), self.action_dim, rows)
            self.memo.samples[key] = sample
        return self.memo.samples[key]


class SampleState:
    """A state of ``rows`` environments, on which functions are recorded."""

    def __init__(
        self,
        state: dict[str, Tensor],
        constants: dict[str, Tensor],
        task: AnyTask,
        device: torch.device,
        action_dim: int,
        rows: int = ROWS,
    ) -> None:
        self.task, self.device, self.constants, self.rows = task, device, constants, rows
        n = next(iter(state.values())).shape[0]
        chosen = torch.arange(rows, device=device) % n
        self.state = {key: x.to(device)[chosen] for key, x in state.items()}
        self.state.setdefault("progress_buf", torch.zeros(rows, dtype=torch.int64, device=device))
        self.state["actions"] = 2.0 * noise.uniform(0, 0, Purpose.ACTION, rows, action_dim, device) - 1.0
        self.action = self.state["actions"].clone()

    def copy_state(self) -> StateDict:
        """Return a copy of the state for one function, which may modify it."""
        copies = {key: x.clone() for key, x in self.state.items()}
        return StateDict({**copies, **own_constants(self.constants, self.device)})

    def record_default(self, kind: Kind) -> Recorded:
        """Return the program of the task's default for a missing function, or an obstacle."""
        state, action = self.copy_state(), self.action.clone()
        call = partial(getattr(self.task, kind.default), action, state)
        return self._run(call, None, state, action, kind, (), False)

    def record(
        self, kind: Kind, function: CandidateFunction, components: tuple[str, ...], incomplete: bool = False
    ) -> Recorded:
        """Return the program of a function, or an obstacle; if ``incomplete``, without untraceable components."""
        state, action = self.copy_state(), self.action.clone()
        call = bind(function, state, action if kind.acts else None)
        return self._run(call, function, state, action, kind, components, incomplete)

    def _run(
        self,
        call: Callable[[], object],
        function: CandidateFunction | None,
        state: StateDict,
        action: Tensor,
        kind: Kind,
        components: tuple[str, ...],
        incomplete: bool,
    ) -> Recorded:
        # inputs: the state, the action, and the counters of the noise
        recorder = Recorder(self.rows, "" if function is None else function.file)
        draws = function is not None and function.random_line is not None
        seed, step = (torch.full((), x, dtype=torch.int64, device=self.device) for x in (7, 11))
        for name, x in {**{key: state[key] for key in self.state}, ACTION: action}.items():
            recorder.load(x, name)
        recorder.scalar(seed, "seed")
        recorder.scalar(step, "step")
        # record one call
        outputs: dict[str, Output] = {}
        try:
            with torch.no_grad(), warnings.catch_warnings(), shared_settings(), stream.use(seed, step, kind.purpose):
                warnings.simplefilter("ignore")
                with recorder, FromStream() if draws else nullcontext():
                    value = call()
            if recorder.obstacle is not None:
                return recorder.obstacle
            for name, x in self.parts(kind, value, components).items():
                recorded = recorder.value(x)
                outputs[name] = Output(recorded.nodes.reshape(-1).tolist(), recorded.kind)
        except FAULTS as error:
            return None, f"raises {one_line(error)} with {self.rows} environments: use x.shape[0], not a fixed number"
        # an untraceable component is an obstacle only if all components are needed
        for i, name in enumerate(components):
            obstacle = recorder.unknown([outputs[f"component{i}"]])
            if obstacle is not None and not recorder.unknown([outputs[VALUE]]):
                if not incomplete:
                    return obstacle[0], f"has the component {name!r}, which {obstacle[1]}"
                del outputs[f"component{i}"]
        return recorder.finished(outputs)

    def parts(self, kind: Kind, value: object, components: tuple[str, ...]) -> dict[str, Tensor]:
        """Return the tensors of a function's return value by the names of a program's outputs."""
        tensors, named = returned(kind, value, kind.parts(self.task), self.rows, self.device.type == "cuda")
        if not named:
            return tensors
        # components as the function returned them: those of 0 dimensions are not expanded
        named_parts = {str(name): torch.as_tensor(x, device=self.device) for name, x in value[1].items()}  # type: ignore[index]
        return {
            **tensors,
            **{f"component{i}": named_parts[name] for i, name in enumerate(components) if name in named_parts},
        }
