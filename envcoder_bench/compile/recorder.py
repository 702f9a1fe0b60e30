"""Record the operations of a function, for one environment, while it runs on sample tensors."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from envcoder_bench.compat.torch_decompositions import decomposition
from envcoder_bench.compile.program import (
    FLOATS,
    MAX_NODES,
    Escape,
    Obstacle,
    Output,
    Program,
    Untraceable,
    pruned,
)
from envcoder_bench.compile.values import RULES, UNSUPPORTED, Result, Values
from mujoco_batches import torch_utils

# methods that give a tensor's numbers or size to Python without an operator
CALLERS = ("apply_", "map_", "map2_")
_EXITS = {getattr(Tensor, name): name for name in ("numpy", "tolist", "__array__", "__dlpack__", *CALLERS)}
_SIZES = {
    *(getattr(Tensor, name) for name in ("size", "__len__", "numel", "nelement", "stride", "__iter__", "__repr__")),
    *(getattr(Tensor, name).__get__ for name in ("shape", "nbytes")),
    torch.numel,
}
_HELPERS = torch_utils.__file__  # these functions use sizes only as shapes


class Recorder(Values, TorchDispatchMode):
    """Records every ATen operator while the function runs, so that Python's control flow is that of a real call.

    The results of operators without a rule are unknown numbers. A function can be traced if its outputs do not depend
    on unknown numbers.

    Args:
        rows: number of environments of the sample tensors; no other axis should have this length, because it identifies
            the axis of environments.
        file: the candidate's file, for the line in ``obstacle``.

    Attributes:
        program: the recorded program.
        obstacle: the line and the reason if the function cannot be traced, because an unknown number affects Python's
            control flow or a tensor that outlives the call. Recording ends there.
    """

    def __init__(self, rows: int, file: str) -> None:
        Values.__init__(self, rows)
        TorchDispatchMode.__init__(self)
        self.obstacle: Obstacle | None = None
        # whether the function may depend on the number of environments: it asked a tensor for its size, or ran code
        # that may do so unseen (TorchScript, operators without a rule)
        self._sized = False
        self._file = file
        self._exits = Exits(self._leave_torch, self._note_size)
        self._writing = False  # whether a rule is running, whose operators are not recorded

    def finished(self, outputs: dict[str, Output]) -> Program | Obstacle:
        """Return the program of these outputs, without other nodes, or the obstacle that prevents it."""
        obstacle = self.obstacle or self.unknown(outputs.values())
        count = sum(len(output.nodes) for output in outputs.values())
        if obstacle is None and count > MAX_NODES:
            obstacle = None, f"returns {count} numbers for one environment; programs have at most {MAX_NODES}"
        self._raise_as_nan(outputs)
        self.program.outputs = outputs
        if obstacle is not None:
            return obstacle
        program = pruned(self.program)
        program.sized = self._sized
        return program

    def _raise_as_nan(self, outputs: dict[str, Output]) -> None:
        """Make all floating-point outputs NaN where an index is beyond its tensor.

        There the function raises, which a program cannot; NaN stops the candidate, too.
        """
        p = self.program
        tests = [node for node in dict.fromkeys(self.beyond) if self._unknown([node]) is None]
        if not tests:
            return
        raises = functools.reduce(lambda x, y: p.add("or", "b", x, y), tests)
        for output in outputs.values():
            for i, node in enumerate(output.nodes):
                kind = p.nodes[node].kind
                if kind in FLOATS:
                    inf = p.const(math.inf, kind)
                    nan = p.add("sub", kind, inf, inf)  # a constant NaN would differ from itself
                    output.nodes[i] = p.add("select", kind, raises, nan, node)

    # recording

    def __enter__(self) -> Recorder:
        super().__enter__()
        self._exits.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._exits.__exit__(*error)
        super().__exit__(*error)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler at the first call, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._exits.depth:  # called by TorchScript
            self._sized = True
        result = func(*args, **kwargs)
        self._attempt(func._schema.name, lambda: self._record(func, args, kwargs, result), (*args, *kwargs.values()))
        return result

    def _attempt(self, name: str, write: Callable[[], None], arguments: Sequence[Any]) -> None:
        """Record a step, or the reason why it cannot be recorded; the traced function must not see the exception.

        If one of the tensors in ``arguments`` is unknown, the reason is that of the tensor.
        """
        if self.obstacle is not None or self._writing:
            return
        self._writing, self.program.line = True, _line_now(self._file)
        try:
            write()
        except Exception as error:
            self.obstacle = self.cause(arguments) or (self.program.line, _reason(name, error))
        finally:
            self._writing = False

    def _note_size(self) -> None:
        """Record that the function asks a tensor for its size."""
        self._sized = True

    def _leave_torch(self, tensor: Tensor, name: str) -> None:
        """Record that the function takes the numbers of ``tensor`` out of torch by the method ``name``."""

        def check() -> None:
            if name in CALLERS:
                raise Untraceable(f"calls a Python function for each number (.{name}())")
            # an array shares the memory of a tensor that the call created, and may change it; a list is a copy
            shared = name != "tolist" and self.value(tensor).is_new
            if shared or not self.is_known(tensor):
                raise Untraceable(f"takes numbers of the state out of torch (.{name}())")

        self._attempt(name, check, [tensor])

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        # arguments by name, and the tensor that is written to, if any
        name, parameters, defaults = _signature(func)
        arguments = {**defaults, **dict(zip(parameters, args)), **kwargs}
        target = arguments.get("out")
        if isinstance(target, Tensor):
            self.value(target)
        elif name.endswith("_") and not name.endswith("__") and name not in RULES:
            name, target = name[:-1], arguments["self"]
        # fold constants, else use the operator's rule, else record the operators that it consists of
        try:
            value = self._folded(func, arguments, result)
            if value is None:
                rule = RULES.get(name)
                value = rule(self, arguments, result) if rule else self._decomposed(func, name, args, kwargs)
            self._keep(func, target, result, value)
        except Escape:
            raise
        # without a value the result is unknown: an obstacle only if an output or the control flow depends on it
        except Exception as error:
            cause = self.cause((*args, *kwargs.values()))
            self.program.line, reason = cause or (self.program.line, _reason(func._schema.name, error))
            self._keep_unknown(func, target, result, reason)

    def _decomposed(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
        """Return the values of an operator's results by recording the operators of its decomposition."""
        steps = decomposition(func, name)
        if steps is None or name in UNSUPPORTED:
            raise Untraceable(UNSUPPORTED.get(name, f"uses {name}, which has no rule"))
        self._sized = True  # the steps may use sizes
        self._writing = False
        super().__enter__()
        try:
            tensors = steps(*args, **{name: x for name, x in kwargs.items() if name != "out"})
        finally:
            super().__exit__(None, None, None)
            self._writing = True
        if self.obstacle is not None:
            (_, reason), self.obstacle = self.obstacle, None
            raise Untraceable(reason)
        return self.value(tensors) if isinstance(tensors, Tensor) else [self.value(x) for x in tensors]

    def _keep(self, func: Any, target: Any, result: Any, values: Result) -> None:
        """Store the values of an operator's results, or of the ``target`` it wrote to."""
        if isinstance(target, Tensor):
            # an operator in place, or with out=, writes to the storage, which other tensors may share
            stored = self.value(target)
            if torch.Tag.inplace_view in func.tags:  # it changes the view, not the storage
                self.store(target, self.checked(target, values))  # type: ignore[arg-type]
                return
            stored.write(self.cast(values, stored.kind).nodes)  # type: ignore[arg-type]
            return
        if isinstance(result, Tensor):
            result, values = (result,), (values,)  # type: ignore[assignment]
        for tensor, value in zip(result, values) if isinstance(result, (tuple, list)) else ():  # type: ignore[arg-type]
            if value is not None and not self.has_value(tensor):
                self.store(tensor, self.checked(tensor, value))

    def _keep_unknown(self, func: Any, target: Any, result: Any, reason: str) -> None:
        """Mark the results of an operator as unknown.

        Raises:
            Escape: the operator has other effects, or the shapes of its results depend on numbers.
        """
        if isinstance(target, Tensor):
            result = target
        self._sized = True  # the operator may return a number for each environment
        tensors = list(result) if isinstance(result, (tuple, list)) else [result]
        only_tensors = bool(tensors) and all(isinstance(x, Tensor) for x in tensors)
        if not only_tensors or torch.Tag.inplace_view in func.tags or _shape_depends_on_numbers(func):
            raise Escape(reason)
        try:
            for tensor in tensors:
                if isinstance(target, Tensor):
                    self.value(tensor).write(np.array(self.program.unknown(self.value(tensor).kind, reason)))
                elif not self.has_value(tensor):
                    self.store(tensor, self.unknown_value(tensor, reason))
        except Untraceable as error:  # its shape or kind is not traceable either
            raise Escape(reason) from error

    def _folded(self, func: Any, arguments: dict[str, Any], result: Any) -> Result | None:
        """Return the numbers of ``result`` as constants if it is computed from known numbers only."""
        # all tensor arguments, none of which may have an axis of environments
        sources: list[Tensor] = []
        for x in arguments.values():
            for y in x if isinstance(x, (tuple, list)) else (x,):
                if isinstance(y, Tensor):
                    if self.axis(y) is not None:  # the usual case comes first
                        return None
                    sources.append(y)
        # random operators, views and results with environments are recorded, not folded
        many = result is None or isinstance(result, (tuple, list))
        returned: list[Any] = list(result or ()) if many else [result]
        if torch.Tag.nondeterministic_seeded in func.tags or not sources:
            return None
        if not all(isinstance(x, Tensor) and self.axis(x) is None for x in returned):
            return None
        if any(x.alias_info is not None and not x.alias_info.is_write for x in func._schema.returns):
            return None  # a view: writes to it must reach its base
        if not all(self.is_known(x) for x in sources):
            return None
        constants = [self.numbers(x) for x in returned]
        return constants if many else constants[0]


@functools.cache
def _signature(func: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Return an operator's name, its parameters, and their defaults."""
    arguments = func._schema.arguments
    defaults = {x.name: x.default_value for x in arguments if x.has_default_value()}
    return func._schema.name.split("::")[-1], [x.name for x in arguments], defaults


def _line_now(file: str) -> int | None:
    """Return the line of ``file`` that is being executed."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_lineno if frame is not None else None


def _reason(name: str, error: Exception) -> str:
    if isinstance(error, Untraceable):
        return str(error)
    return f"uses {name} in a way that no rule describes ({type(error).__name__}: {error})"


def _shape_depends_on_numbers(func: Any) -> bool:
    """Return whether the shape of an operator's result depends on the numbers in its arguments.

    That of an index depends on them only if it is a mask, which the rule of indices checks.
    """
    return torch.Tag.dynamic_output_shape in func.tags and func._schema.name != "aten::index"


class Exits(TorchFunctionMode):
    """Reports methods that give a tensor's numbers or size to Python without an operator.

    Args:
        numbers: called with a tensor and the name of a method that gives its numbers.
        size: called where a tensor is asked for its size.
    """

    def __init__(self, numbers: Callable[[Tensor, str], None], size: Callable[[], None]) -> None:
        super().__init__()
        self._numbers, self._size = numbers, size
        self.depth = 0  # number of nested calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _EXITS:
            self._numbers(args[0], _EXITS[func])
        elif func in _SIZES and sys._getframe(1).f_code.co_filename != _HELPERS:
            self._size()
        self.depth += 1
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.depth -= 1
