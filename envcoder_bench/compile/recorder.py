"""Record the operations of a function, for one environment, while it runs on sample tensors."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from envcoder_bench import torch_utils
from envcoder_bench.compile.decompositions import decomposition
from envcoder_bench.compile.program import (
    MAX_NODES,
    Escape,
    Fault,
    Number,
    Output,
    Program,
    Untraceable,
    Value,
    env_axis,
    kind_of,
    pruned,
    reachable,
)

MAX_CONSTANTS = 4096  # numbers in one constant tensor

Result = Union[Value, Sequence[Optional[Value]]]  # None: for a tensor that is not accessible
Arguments = Dict[str, Any]
Rule = Callable[["Recorder", Arguments, Any], Result]  # (recorder, arguments by name, torch's result)
RULES: dict[str, Rule] = {}  # by the name of the ATen operator


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule that records the operators of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"operator {name} has a rule already")
            RULES[name] = function
        return function

    return register


class Recorder(TorchDispatchMode):
    """Records every ATen operator while the function runs, so that Python's control flow is that of a real call.

    The results of operators without a rule are unknown numbers. A function can be traced if its outputs do not depend
    on unknown numbers.

    Args:
        rows: number of environments of the sample tensors; no other axis should have this length, because it identifies
            the axis of environments.
        file: the candidate's file, for the line in ``fault``.

    Attributes:
        program: the recorded program.
        fault: the line and the reason if the function cannot be traced, because an unknown number affects Python's
            control flow or a tensor that outlives the call. Recording ends there.
    """

    def __init__(self, rows: int, file: str) -> None:
        super().__init__()
        self.rows, self.program = rows, Program()
        self.fault: Fault | None = None
        # whether the function may depend on the number of environments: it asked a tensor for its size, or ran code in
        # which that is not observed (TorchScript, operators without a rule)
        self._sized = False
        self._file = file
        self._values: dict[int, tuple[Tensor, Value]] = {}  # the tensor is kept so that its id is not reused
        self._inputs: dict[int, tuple[Tensor, str]] = {}  # tensors of the state, and their names
        self._live: dict[int, str] = {}  # their storages
        self._exits = _Exits(self)
        self._writing = False  # whether a rule is running, whose operators are not recorded

    # inputs and outputs

    def load(self, tensor: Tensor, name: str) -> None:
        """Declare a tensor ``(rows, ...)`` as the key ``name`` of the state."""
        self._inputs[id(tensor)] = (tensor, name)
        self._live[tensor.untyped_storage().data_ptr()] = name

    def scalar(self, tensor: Tensor, op: str) -> None:
        """Declare a 0-d int64 tensor as the ``seed`` or the ``step`` of the random numbers."""
        value = Value.of(np.array(self.program.add(op, "i64")), "i64")
        value.own = False
        self._values[id(tensor)] = (tensor, value)

    def value(self, tensor: Tensor) -> Value:
        """Return the value of a tensor; one that is neither from the state nor created by the call is a constant."""
        if id(tensor) not in self._values:
            made = self._loaded(tensor) if id(tensor) in self._inputs else self._constant(tensor)
            made.own = False
            self._values[id(tensor)] = (tensor, made)
        return self._values[id(tensor)][1]

    def _loaded(self, tensor: Tensor) -> Value:
        shape, kind, name = self._env_shape(tensor), kind_of(tensor.dtype), self._inputs[id(tensor)][1]
        columns = range(int(np.prod(shape)))
        nodes = [self.program.add("load", kind, name=name, column=column) for column in columns]
        return Value.of(np.array(nodes, dtype=np.int64).reshape(shape), kind)

    def _constant(self, tensor: Tensor) -> Value:
        name = self._live.get(tensor.untyped_storage().data_ptr())
        if name is not None:
            raise Untraceable(f"reads {name!r} past torch (.data, .numpy())")
        if tensor.numel() > MAX_CONSTANTS:
            raise Untraceable(f"uses a constant of {tensor.numel()} numbers")
        if self.axis(tensor) is not None:
            raise Untraceable("uses numbers of each environment that do not come from the state")
        return self._numbers(tensor)

    def _numbers(self, tensor: Tensor) -> Value:
        """Return the present numbers of a tensor as constants."""
        kind = kind_of(tensor.dtype)
        nodes = [self.program.const(x, kind) for x in tensor.detach().reshape(-1).tolist()]
        return Value.of(np.array(nodes, dtype=np.int64).reshape(tuple(tensor.shape)), kind)

    def unknown(self, outputs: Iterable[Output]) -> Fault | None:
        """Return the line and the reason of the first unknown number that the outputs depend on."""
        return self._unknown([node for output in outputs for node in output.nodes])

    def _unknown(self, nodes: Sequence[int]) -> Fault | None:
        wanted = reachable(self.program, nodes)
        found = next((place for place in wanted if self.program.nodes[place].op == "unknown"), None)
        return None if found is None else (self.program.lines[found], self.program.nodes[found].name)

    def finished(self, outputs: dict[str, Output]) -> Program | Fault:
        """Return the program of these outputs, without other nodes, or the fault that prevents it."""
        fault = self.fault or self.unknown(outputs.values())
        count = sum(len(own.nodes) for own in outputs.values())
        if fault is None and count > MAX_NODES:
            fault = None, f"returns {count} numbers for one environment; programs have at most {MAX_NODES}"
        self.program.outputs = outputs
        if fault is not None:
            return fault
        made = pruned(self.program)
        made.sized = self._sized
        return made

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

    def _attempt(self, name: str, write: Callable[[], None], given: Sequence[Any]) -> None:
        """Record a step, or the reason why it cannot be recorded; the traced function must not see the exception.

        If one of the ``given`` tensors is unknown, the reason is that of the tensor.
        """
        if self.fault is not None or self._writing:
            return
        self._writing, self.program.line = True, _line_now(self._file)
        try:
            write()
        except Exception as error:
            self.fault = self._cause(given) or (self.program.line, _reason(name, error))
        finally:
            self._writing = False

    def note_size(self) -> None:
        """Record that the function asks a tensor for its size."""
        self._sized = True

    def leave_torch(self, tensor: Tensor, name: str) -> None:
        """Record that the function takes the numbers of ``tensor`` out of torch by the method ``name``."""

        def check() -> None:
            if name in _CALLERS:
                raise Untraceable(f"calls a Python function for each number (.{name}())")
            # an array shares the memory of a tensor that the call created, and may change it; a list is a copy
            shared = name != "tolist" and self.value(tensor).own
            if shared or not self.is_known(tensor):
                raise Untraceable(f"takes numbers of the state out of torch (.{name}())")

        self._attempt(name, check, [tensor])

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        name, parameters, defaults = _signature(func)
        given = {**defaults, **dict(zip(parameters, args)), **kwargs}
        target = given.get("out")
        if isinstance(target, Tensor):
            self.value(target)
        elif name.endswith("_") and not name.endswith("__") and name not in RULES:
            name, target = name[:-1], given["self"]
        try:
            made = self._folded(func, given, result)
            if made is None:
                own = RULES.get(name)
                made = own(self, given, result) if own else self._decomposed(func, name, args, kwargs)
            self._keep(func, target, result, made)
        except Escape:
            raise
        except Exception as error:
            cause = self._cause((*args, *kwargs.values()))
            self.program.line, reason = cause or (self.program.line, _reason(func._schema.name, error))
            self._keep_unknown(func, target, result, reason)

    def _decomposed(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
        """Return the values of an operator's results by recording the operators of its decomposition."""
        steps = decomposition(func, name)
        if steps is None or name in _UNSUPPORTED:
            raise Untraceable(_UNSUPPORTED.get(name, f"uses {name}, which has no rule"))
        self._sized = True  # the steps may use sizes
        self._writing = False
        super().__enter__()
        try:
            made = steps(*args, **{name: x for name, x in kwargs.items() if name != "out"})
        finally:
            super().__exit__(None, None, None)
            self._writing = True
        if self.fault is not None:
            (_, reason), self.fault = self.fault, None
            raise Untraceable(reason)
        return self.value(made) if isinstance(made, Tensor) else [self.value(x) for x in made]

    def _cause(self, given: Sequence[Any]) -> Fault | None:
        """Return the line and the reason of the first unknown number among an operator's arguments."""
        tensors = [y for x in given for y in (x if isinstance(x, (tuple, list)) else (x,)) if isinstance(y, Tensor)]
        known = [self._values[id(x)][1].nodes.reshape(-1) for x in tensors if id(x) in self._values]
        return self._unknown([int(node) for own in known for node in own])

    def _keep(self, func: Any, target: Any, result: Any, made: Result) -> None:
        """Store the values of an operator's results, or of the ``target`` it wrote to."""
        if isinstance(target, Tensor):
            own = self.value(target)
            if torch.Tag.inplace_view in func.tags:  # changes the view, not the storage
                self._values[id(target)] = (target, self._finished(target, made))  # type: ignore[arg-type]
                return
            own.write(self.cast(made, own.kind).nodes)  # type: ignore[arg-type]
            return
        if isinstance(result, Tensor):
            result, made = (result,), (made,)  # type: ignore[assignment]
        for tensor, value in zip(result, made) if isinstance(result, (tuple, list)) else ():  # type: ignore[arg-type]
            if value is not None and id(tensor) not in self._values:
                self._values[id(tensor)] = (tensor, self._finished(tensor, value))

    def _keep_unknown(self, func: Any, target: Any, result: Any, reason: str) -> None:
        """Mark the results of an operator as unknown.

        Raises:
            Escape: the operator has other effects, or the shapes of its results depend on numbers.
        """
        if isinstance(target, Tensor):
            result = target
        self._sized = True  # the number of results may be that of environments
        made = list(result) if isinstance(result, (tuple, list)) else [result]
        only_tensors = bool(made) and all(isinstance(x, Tensor) for x in made)
        if not only_tensors or torch.Tag.inplace_view in func.tags or _shape_depends_on_numbers(func):
            raise Escape(reason)
        try:
            for tensor in made:
                if isinstance(target, Tensor):
                    self.value(tensor).write(np.array(self.program.unknown(self.value(tensor).kind, reason)))
                elif id(tensor) not in self._values:
                    self._values[id(tensor)] = (tensor, self._unknown_value(tensor, reason))
        except Untraceable as error:  # neither its shape nor its kind is traceable
            raise Escape(reason) from error

    def _unknown_value(self, tensor: Tensor, reason: str) -> Value:
        kind, shape = kind_of(tensor.dtype), self._env_shape(tensor)
        value = Value.of(np.full(shape, self.program.unknown(kind, reason), dtype=np.int64), kind)
        value.unknown = reason
        return value

    def _folded(self, func: Any, given: dict[str, Any], result: Any) -> Result | None:
        """Return the numbers of ``result`` as constants if it is computed from known numbers only."""
        sources: list[Tensor] = []
        for x in given.values():
            for y in x if isinstance(x, (tuple, list)) else (x,):
                if isinstance(y, Tensor):
                    if self.axis(y) is not None:  # the usual case
                        return None
                    sources.append(y)
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
        made = [self._numbers(x) for x in returned]
        return made if many else made[0]

    def is_known(self, tensor: Tensor) -> bool:
        """Return whether the numbers of a tensor depend neither on the state nor on random numbers."""
        value = self.value(tensor)
        return all(self.program.is_const(value.storage[place]) for place in value.index.reshape(-1).tolist())

    def _finished(self, tensor: Tensor, value: Value) -> Value:
        """Check that a rule's value agrees with torch's result in shape, and convert it to torch's kind."""
        if value.index.shape != self._env_shape(tensor):
            raise Untraceable(f"makes a tensor of shape {tuple(tensor.shape)} in a way that no rule describes")
        return self.cast(value, kind_of(tensor.dtype))

    # what rules use

    def _env_shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the tensor's shape for one environment; the axis of environments has its entries per environment."""
        axis = env_axis(tuple(tensor.shape), self.rows)
        return tuple(size // self.rows if i == axis else size for i, size in enumerate(tensor.shape))

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        return self._env_shape(tensor)

    def axis(self, tensor: Tensor) -> int | None:
        """Return the tensor's axis of environments, or None."""
        return env_axis(tuple(tensor.shape), self.rows)

    def inner_axis(self, tensor: Tensor, dim: int, what: str) -> int:
        """Return ``dim`` counted from the front; raise Untraceable if it is the axis of environments."""
        dim = dim % max(tensor.dim(), 1)
        if dim == self.axis(tensor):
            raise Untraceable(what)
        return dim

    def nodes(self, x: Tensor | Number, kind: str | None = None) -> np.ndarray:
        """Return the nodes of a tensor or a number, converted to ``kind``."""
        if isinstance(x, Tensor):
            value = self.value(x)
            return value.nodes if kind is None else self.cast(value, kind).nodes
        if not isinstance(x, (bool, int, float)):
            raise Untraceable(f"computes with a {type(x).__name__}")
        return np.array(self.program.const(x, kind or "f32"))

    def cast(self, value: Value, kind: str) -> Value:
        if value.kind == kind:
            return value
        nodes = [self.program.cast(int(node), kind) for node in value.nodes.reshape(-1)]
        return Value.of(np.array(nodes, dtype=np.int64).reshape(value.index.shape), kind)

    def elementwise(self, arrays: Sequence[np.ndarray], kind: str, make: Callable[..., int], result: Tensor) -> Value:
        """Apply ``make`` (nodes to node) to broadcast arrays of nodes; constants have torch's own numbers."""
        program, shape = self.program, self._env_shape(result)
        flat = [np.broadcast_to(x, shape).reshape(-1).tolist() for x in arrays]
        if all(program.is_const(node) for x in flat for node in x):
            axis = self.axis(result)
            one = result if axis is None else result.narrow(axis, 0, shape[axis])
            made: list[int] = [program.const(x, kind) for x in one.reshape(-1).tolist()]
        else:
            made = [make(*nodes) for nodes in zip(*flat)]
        return Value.of(np.array(made, dtype=np.int64).reshape(shape), kind)


@functools.lru_cache(maxsize=None)
def _signature(func: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Return an operator's name, its parameters, and their defaults."""
    arguments = func._schema.arguments
    defaults = {x.name: x.default_value for x in arguments if x.has_default_value()}
    return func._schema.name.split("::")[-1], [x.name for x in arguments], defaults


_CALLERS = ("apply_", "map_", "map2_")
_EXITS = {getattr(Tensor, name): name for name in ("numpy", "tolist", "__array__", "__dlpack__", *_CALLERS)}
_SIZES = {
    *(getattr(Tensor, name) for name in ("size", "__len__", "numel", "nelement", "stride", "__iter__", "__repr__")),
    *(getattr(Tensor, name).__get__ for name in ("shape", "nbytes")),
    torch.numel,
}


class _Exits(TorchFunctionMode):
    """Intercepts methods that give a tensor's numbers or size to Python without an operator."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.depth = 0  # of nested calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _EXITS:
            self._recorder.leave_torch(args[0], _EXITS[func])
        elif func in _SIZES and sys._getframe(1).f_code.co_filename != _HELPERS:
            self._recorder.note_size()
        self.depth += 1
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.depth -= 1


_HELPERS = torch_utils.__file__  # these functions use sizes only as shapes


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

    For an index this is so only if it is a mask, which its rule checks.
    """
    return torch.Tag.dynamic_output_shape in func.tags and func._schema.name != "aten::index"


_GENERATOR = "draws from a library's generator"
_VALUES = "lets its control flow or shapes depend on numbers of the state (if, .item(), a mask as index)"
_GENERATORS = (
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "uniform", "normal", "bernoulli", "random",
    "randperm", "multinomial", "exponential", "native_dropout",
)  # fmt: skip
_UNSUPPORTED = {
    **dict.fromkeys(_GENERATORS, _GENERATOR),
    **dict.fromkeys(("nonzero", "masked_select", "is_nonzero", "equal", "_is_all_true", "_is_any_true"), _VALUES),
}


@rule("_local_scalar_dense")
def _item(rec: Recorder, a: dict[str, Any], result: Any) -> Result:
    if not rec.is_known(a["self"]):
        raise Escape(_VALUES)
    return []


def result_kind(*operands: Tensor | Number) -> str:
    """Return the kind of number in which torch computes with these operands."""
    if len(operands) == 1:
        return kind_of(operands[0].dtype)  # type: ignore[union-attr]
    return kind_of(torch.result_type(operands[0], operands[1]))
