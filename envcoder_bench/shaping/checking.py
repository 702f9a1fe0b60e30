"""Checks before training: each function is called once on a copy of a real state, which also gives its dimensions."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from envcoder_bench.core import noise, stream
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.random_calls import FromStream
from envcoder_bench.shaping import kept, outputs
from envcoder_bench.shaping.contract import (
    MAX_ACTION_DIM,
    CandidateError,
    CandidateFunction,
    CandidateWarning,
    Fault,
    Shaping,
)
from envcoder_bench.shaping.faults import FAULTS, BadReturn, Mutation, from_exception, noting_returns
from envcoder_bench.shaping.kinds import ACTION_TYPES, KINDS, VALUE
from envcoder_bench.shaping.remedies import not_finite_remedy
from envcoder_bench.shaping.shared import shared_settings
from envcoder_bench.shaping.state import StateDict, bind, own_constants
from envcoder_bench.tasks.contract import AnyTask

T = TypeVar("T")
CPU = torch.device("cpu")


def check(
    shaping: Shaping,
    state: dict[str, Tensor],
    constants: dict[str, Tensor],
    task: AnyTask,
    trial: TrialState | None = None,
    cpu_action_dim: int | None = None,
) -> Shaping:
    """Return ``shaping`` with ``widths``, ``action_dim``, ``effort`` and ``components`` filled in.

    Functions that stored something in their module have a ``stateful_line``.

    Args:
        state: per-environment tensors ``(n, ...)`` of a real state, n environments of a group. ``actions`` is replaced
            by random numbers of the width in question; ``progress_buf`` is added if it is missing.
        constants: the task's constants.
        trial: a TrialState of these, which many checks on one state can share.
        cpu_action_dim: the width of the action with which this check is known to pass on the CPU, on this state.

    Raises:
        CandidateError: a function raises, returns a value that violates its contract or is not finite, or changes its
            input in place. Functions may have changed their module: load the candidate again for training.
    """
    try:
        trial = trial or TrialState(state, constants, task)
        trial.begin(cpu_action_dim)
        return _check(shaping, trial, task)
    except CandidateError as error:
        fault = error
    # without traceback and cause, whose frames would keep the candidate's tensors alive
    fault.__cause__ = fault.__context__ = None
    raise fault.with_traceback(None)


def _check(shaping: Shaping, trial: TrialState, task: AnyTask) -> Shaping:
    widths, components = {}, ()
    for function in shaping.functions.values():
        if function.type in task.refusals:
            message = f"cannot be used: {task.refusals[function.type]}"
            raise CandidateError(message, function.file, function.line, function.type)
    # the width of the action comes first: other functions read it
    faults: list[CandidateError] = []
    with torch.no_grad():
        try:
            trial.action_dim = _action_dim(shaping, trial, task)
        except CandidateError as error:
            faults.append(error)
            trial.action_dim = task.num_dofs
        for function in shaping.functions.values():
            kind = KINDS[function.type]
            if kind.acts:
                continue  # _action_dim has called it
            try:
                tensors, named = trial.results(function, task)
            except CandidateError as error:
                faults.append(error)
                continue
            if kind.components:
                components = tuple(named)
            if VALUE in tensors and tensors[VALUE].dim() == 2:
                widths[kind.stage] = tensors[VALUE].shape[1]
    # all faults of a file in one message
    if faults:
        first, *others = faults
        more = "".join(f"; also {error}" for error in others if error.fault.file == shaping.file)
        raise (
            CandidateError.of(replace(first.fault, message=first.fault.explanation + more, remedy=""))
            if more
            else first
        )
    effort = any(KINDS[function.type].effort for function in shaping.functions.values())
    shaping = shaping.with_functions({stage: trial.judged(call) for stage, call in shaping.functions.items()})
    return replace(shaping, widths=widths, action_dim=trial.action_dim, effort=effort, components=components)


def check_fitness(function: CandidateFunction, trial: TrialState, task: AnyTask, action_dim: int) -> CandidateFunction:
    """Call ``compute_fitness`` once, with actions of width ``action_dim`` in the state; return it as ``check`` does.

    Raises:
        CandidateError: as ``check``.
    """
    with torch.no_grad():
        trial.action_dim = action_dim
        trial.results(function, task)
    return trial.judged(function)


class TrialState:
    """A state on which functions are called to check them.

    ``actions`` ``(n, width)`` are padded with zeros; None for random ones.
    """

    def __init__(
        self,
        state: dict[str, Tensor],
        constants: dict[str, Tensor],
        task: AnyTask,
        actions: Tensor | None = None,
    ) -> None:
        self.n = next(iter(state.values())).shape[0]
        self.device, self.action_dim = task.device, 0
        self.cpu_action_dim: int | None = None  # the argument of ``check``
        self._keepers: list[CandidateFunction] = []  # functions that stored something in their module
        state = {**state}
        state.setdefault("progress_buf", torch.zeros(self.n, dtype=torch.int64, device=task.device))
        if actions is None:  # the number at (environment, column) does not depend on how many columns there are
            actions = 2.0 * noise.uniform(0, 0, Purpose.ACTION, self.n, MAX_ACTION_DIM, task.device) - 1.0
        actions = torch.nn.functional.pad(actions, (0, MAX_ACTION_DIM - actions.shape[1]))
        devices = {task.device, CPU}
        self._states = {device: {key: x.to(device) for key, x in state.items()} for device in devices}
        self._actions = {device: actions.to(device) for device in devices}
        self._constants = {device: own_constants(constants, device) for device in devices}

    def begin(self, cpu_action_dim: int | None) -> None:
        """Begin the check of another shaping."""
        self.cpu_action_dim, self._keepers = cpu_action_dim, []

    def digest(self) -> str:
        """Return a digest of the numbers of the state."""
        digest = hashlib.sha256()
        for key, x in sorted(self._states[CPU].items()):
            digest.update(f"{key} {tuple(x.shape)} {x.dtype} ".encode())
            digest.update(x.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def inputs(self, device: torch.device, rows: int | None = None) -> dict[str, Tensor]:
        """Return the state of the first ``rows`` environments with actions of the present width, not copied."""
        state = {key: x[:rows] for key, x in self._states[device].items()}
        actions = self._actions[device][:rows, : self.action_dim]
        return {**state, "actions": actions, **self._constants[device]}

    def results(self, function: CandidateFunction, task: AnyTask) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Call ``function``; returns its tensors by part and its components, see ``outputs.returned``.

        Raises:
            CandidateError: as ``check``.
        """
        kind, on_cuda = KINDS[function.type], self.device.type == "cuda"
        parts = kind.parts(task)
        if on_cuda and self.action_dim != self.cpu_action_dim:
            self._check_on_the_cpu(function)

        def parse(value: object) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            tensors, components = outputs.returned(kind, value, parts, self.n, on_cuda)
            for key, x in tensors.items():
                outputs.require_finite(x, "" if key == VALUE else repr(key))
            return tensors, components

        return self._run(function, parse, self.device)

    def judged(self, function: CandidateFunction) -> CandidateFunction:
        """Return a function that was called, with a ``stateful_line`` if it stored something in its module."""
        keeps = function.stateful_line is None and any(keeper is function for keeper in self._keepers)
        return replace(function, stateful_line=function.line) if keeps else function

    def widths_that_fit(self, function: CandidateFunction, num_dofs: int) -> list[int]:
        """Return the action widths with which a function returns the right shape for a few environments on the CPU.

        This is fast, so that a hundred widths need not be tried on all environments. Empty if it cannot run there.
        """
        rows, fits = min(self.n, 3), []
        self.action_dim = MAX_ACTION_DIM
        state = {key: x.clone() for key, x in self.inputs(CPU, rows).items()}
        with self._watched(function), _surroundings(function, CPU):
            for width in range(MAX_ACTION_DIM, 0, -1):
                actions = state["actions"][:, :width].clone()
                try:
                    value = bind(function, StateDict({**state, "actions": actions}))()
                except FAULTS:
                    continue
                if isinstance(value, Tensor) and value.shape == (rows, num_dofs):
                    fits.append(width)
        return fits

    @contextmanager
    def _watched(self, function: CandidateFunction) -> Iterator[None]:
        """Note whether the function stores something in its module inside the block."""
        module = function.module
        before = None if module is None else kept.contents(module)
        try:
            yield
        finally:
            if module is not None and kept.contents(module) != before:
                self._keepers.append(function)

    def _run(self, function: CandidateFunction, parse: Callable[[object], T], device: torch.device) -> T:
        real = self.inputs(device)
        inputs = StateDict({key: x.clone(memory_format=torch.contiguous_format) for key, x in real.items()})
        versions = {key: x._version for key, x in inputs.items()}
        call, returns = bind(function, inputs), list[int]()
        try:
            with self._watched(function), _surroundings(function, device), noting_returns(function) as returns:
                value = call()
            for key, x in inputs.items():
                if x._version != versions[key] or not _unchanged(x, real[key]):
                    raise Mutation(in_place(key))
            return parse(value)
        except FAULTS as error:
            fault = from_exception(error, function, keys=real, returned_at=returns[0] if returns else None)
            if isinstance(error, BadReturn) and error.not_finite:
                remedy = not_finite_remedy(call, function, inputs)
                fault = CandidateError.of(replace(fault.fault, remedy=remedy))
            raise fault from error

    def _check_on_the_cpu(self, function: CandidateFunction) -> None:
        """Call the function on the CPU, which shows faults that CUDA does not show.

        A bad index would break the process's CUDA context, and a write through ``.data`` leaves no trace there.
        """
        try:
            self._run(function, lambda value: None, CPU)
        except CandidateError as error:
            bad_index = "out of bounds" in error.fault.message or "IndexError" in error.fault.message
            if bad_index or error.fault.kind == "changed input":
                raise


@contextmanager
def _surroundings(function: CandidateFunction, device: torch.device) -> Iterator[None]:
    """Call a function with random numbers of its own, and restore torch's settings."""
    with ExitStack() as stack:
        stack.enter_context(shared_settings())
        stack.enter_context(stream.use(0, 0, Purpose.COMMAND))
        if function.random_line is not None:  # seeding takes time, and inside FromStream TorchScript's errors lose text
            stack.enter_context(stream.seeded(0, device))
            stack.enter_context(FromStream())
        yield


def _unchanged(x: Tensor, before: Tensor) -> bool:
    """Return whether the values are equal; a write through .data or .numpy() does not change the version.

    Always True on CUDA, where each comparison would wait for the device; the function has been checked on the CPU.
    """
    return x.is_cuda or torch.equal(x, before) or torch.equal(torch.nan_to_num(x), torch.nan_to_num(before))


def in_place(key: str) -> str:
    """Return the message for a function that changed a tensor of the state."""
    return f"changed {key!r} in place (x += 1, x[...] = 1 and x.add_(1) do)"


def _action_dim(shaping: Shaping, trial: TrialState, task: AnyTask) -> int:
    """Return the width of the action: ACTION_DIM, else the widest that works; the task's without an action function."""
    function = next((each for each in shaping.functions.values() if KINDS[each.type].acts), None)
    if function is None:
        if task.default_action_dim is None:
            message, remedy = f"{task.name} has no position drives of its own", f"define {' or '.join(ACTION_TYPES)}"
            raise CandidateError(message, shaping.file, remedy=remedy)
        return task.default_action_dim
    if function.action_dim is not None:
        _try_width(function, function.action_dim, trial, task)
        return function.action_dim
    # the widest that works
    bind(function, StateDict(trial.inputs(task.device)))  # an unknown parameter fails at any width
    fits = trial.widths_that_fit(function, task.num_dofs)
    # if some widths fit on the CPU, only these are tried
    for width in range(MAX_ACTION_DIM, 0, -1):
        if fits and width not in fits:
            continue
        try:
            _try_width(function, width, trial, task)
        except CandidateError:
            continue
        if width == MAX_ACTION_DIM:
            message = f"{function.type} takes actions of any width, so it trains with {width}"
            remedy = f"set ACTION_DIM = {task.num_dofs} or what it uses"
            warnings.warn(CandidateWarning(Fault(message, function.file, function.line, remedy=remedy)), stacklevel=3)
        return width
    return _explain_no_width(function, trial, task)


def _try_width(function: CandidateFunction, width: int, trial: TrialState, task: AnyTask) -> None:
    trial.action_dim = width
    trial.results(function, task)


def _explain_no_width(function: CandidateFunction, trial: TrialState, task: AnyTask) -> int:
    """Raise the error for an action with one number per joint, the most likely width."""
    cause: Fault | None = None
    try:
        _try_width(function, task.num_dofs, trial, task)
    except CandidateError as error:
        cause = error.fault
    reason = f"with actions of width {task.num_dofs} it {cause.explanation}" if cause else "set ACTION_DIM"
    raise CandidateError(
        f"works with no action width from {MAX_ACTION_DIM} to 1: {reason}",
        function.file,
        cause.line if cause else function.line,
        function.type,
    )
