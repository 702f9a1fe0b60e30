"""The values of tensors while a function is recorded, and the registry of the rules that compute new ones."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.compile.program import (
    Escape,
    Number,
    Obstacle,
    Output,
    Program,
    Untraceable,
    Value,
    env_axis,
    kind_of,
    reachable,
)

MAX_CONSTANTS = 4096  # numbers in one constant tensor


class Values:
    """The values of tensors, and methods with which the rules of operators compute new ones.

    Args:
        rows: number of environments of the sample tensors; no other axis should have this length, because it identifies
            the axis of environments.

    Attributes:
        program: the program; values consist of its nodes.
        beyond: nodes that say whether an index is beyond its tensor, where torch raises.
    """

    def __init__(self, rows: int) -> None:
        self.rows, self.program = rows, Program()
        self.beyond: list[int] = []
        self._values: dict[int, tuple[Tensor, Value]] = {}  # the tensor is kept so that its id is not reused
        self._inputs: dict[int, tuple[Tensor, str]] = {}  # tensors of the state, and their names
        self._live: dict[int, str] = {}  # names of the state's tensors, by the address of their storage

    def load(self, tensor: Tensor, name: str) -> None:
        """Declare a tensor ``(rows, ...)`` as the key ``name`` of the state."""
        self._inputs[id(tensor)] = (tensor, name)
        self._live[tensor.untyped_storage().data_ptr()] = name

    def scalar(self, tensor: Tensor, op: str) -> None:
        """Declare a 0-d int64 tensor as the ``seed`` or the ``step`` of the random numbers."""
        value = Value.of(np.array(self.program.add(op, "i64")), "i64")
        value.is_new = False
        self.store(tensor, value)

    def value(self, tensor: Tensor) -> Value:
        """Return the value of a tensor; one that is neither from the state nor created by the call is a constant."""
        if not self.has_value(tensor):
            value = self._loaded(tensor) if id(tensor) in self._inputs else self._constant(tensor)
            value.is_new = False
            self.store(tensor, value)
        return self._values[id(tensor)][1]

    def _loaded(self, tensor: Tensor) -> Value:
        shape, kind, name = self.shape(tensor), kind_of(tensor.dtype), self._inputs[id(tensor)][1]
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
        return self.numbers(tensor)

    def numbers(self, tensor: Tensor) -> Value:
        """Return the present numbers of a tensor as constants."""
        kind = kind_of(tensor.dtype)
        nodes = [self.program.const(x, kind) for x in tensor.detach().reshape(-1).tolist()]
        return Value.of(np.array(nodes, dtype=np.int64).reshape(tuple(tensor.shape)), kind)

    def is_known(self, tensor: Tensor) -> bool:
        """Return whether the numbers of a tensor depend neither on the state nor on random numbers."""
        value = self.value(tensor)
        return all(self.program.is_const(value.storage[position]) for position in value.index.reshape(-1).tolist())

    def has_value(self, tensor: Tensor) -> bool:
        """Return whether the tensor's value was stored."""
        return id(tensor) in self._values

    def store(self, tensor: Tensor, value: Value) -> None:
        """Store the value of a tensor."""
        self._values[id(tensor)] = (tensor, value)

    def checked(self, tensor: Tensor, value: Value) -> Value:
        """Check that a rule's value agrees with torch's result in shape, and convert it to torch's kind."""
        if value.index.shape != self.shape(tensor):
            raise Untraceable(f"makes a tensor of shape {tuple(tensor.shape)} in a way that no rule describes")
        return self.cast(value, kind_of(tensor.dtype))

    # unknown numbers

    def unknown_value(self, tensor: Tensor, reason: str) -> Value:
        """Return the value of a tensor whose numbers are unknown for this reason."""
        kind, shape = kind_of(tensor.dtype), self.shape(tensor)
        value = Value.of(np.full(shape, self.program.unknown(kind, reason), dtype=np.int64), kind)
        value.unknown = reason
        return value

    def unknown(self, outputs: Iterable[Output]) -> Obstacle | None:
        """Return the line and the reason of the first unknown number that the outputs depend on."""
        return self._unknown([node for output in outputs for node in output.nodes])

    def _unknown(self, nodes: Sequence[int]) -> Obstacle | None:
        wanted = reachable(self.program, nodes)
        node = next((each for each in wanted if self.program.nodes[each].op == "unknown"), None)
        return None if node is None else (self.program.lines[node], self.program.nodes[node].name)

    def cause(self, arguments: Sequence[Any]) -> Obstacle | None:
        """Return the line and the reason of the first unknown number among an operator's arguments."""
        tensors = [y for x in arguments for y in (x if isinstance(x, (tuple, list)) else (x,)) if isinstance(y, Tensor)]
        arrays = [self._values[id(x)][1].nodes.reshape(-1) for x in tensors if self.has_value(x)]
        return self._unknown([int(node) for array in arrays for node in array])

    # methods for the rules of operators

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Return the tensor's shape for one environment; the axis of environments has its entries per environment."""
        axis = env_axis(tuple(tensor.shape), self.rows)
        return tuple(size // self.rows if i == axis else size for i, size in enumerate(tensor.shape))

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

    def within(self, index: int, first: int, size: int) -> None:
        """Require that a node is an index from ``first`` to ``size - 1``."""
        p = self.program
        if p.is_const(index):
            return  # torch has checked it
        tests = (p.add(op, "b", index, p.const(end, "i64")) for op, end in (("lt", first), ("ge", size)))
        self.beyond.append(p.add("or", "b", *tests))

    def elementwise(self, arrays: Sequence[np.ndarray], kind: str, make: Callable[..., int], result: Tensor) -> Value:
        """Apply ``make`` (nodes to node) to broadcast arrays of nodes; constants have torch's own numbers."""
        program, shape = self.program, self.shape(result)
        flat = [np.broadcast_to(x, shape).reshape(-1).tolist() for x in arrays]
        if all(program.is_const(node) for x in flat for node in x):
            axis = self.axis(result)
            numbers = result if axis is None else result.narrow(axis, 0, shape[axis])
            new: list[int] = [program.const(x, kind) for x in numbers.reshape(-1).tolist()]
        else:
            new = [make(*nodes) for nodes in zip(*flat)]
        return Value.of(np.array(new, dtype=np.int64).reshape(shape), kind)


def result_kind(*operands: Tensor | Number) -> str:
    """Return the kind of number in which torch computes with these operands."""
    if len(operands) == 1:
        return kind_of(operands[0].dtype)  # type: ignore[union-attr]
    return kind_of(torch.result_type(operands[0], operands[1]))


Result = Value | Sequence[Value | None]  # None for a tensor that is not accessible
Arguments = dict[str, Any]
Rule = Callable[[Values, Arguments, Any], Result]  # (values, arguments by name, torch's result)
RULES: dict[str, Rule] = {}  # keys are names of ATen operators


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule that records the operators of these names."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"operator {name} has a rule already")
            RULES[name] = function
        return function

    return register


_GENERATOR = "draws from a library's generator"
_VALUES = "lets its control flow or shapes depend on numbers of the state (if, .item(), a mask as index)"
_GENERATORS = (
    "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "uniform", "normal", "bernoulli", "random",
    "randperm", "multinomial", "exponential", "native_dropout",
)  # fmt: skip
UNSUPPORTED = {
    **dict.fromkeys(_GENERATORS, _GENERATOR),
    **dict.fromkeys(("nonzero", "masked_select", "is_nonzero", "equal", "_is_all_true", "_is_any_true"), _VALUES),
}


@rule("_local_scalar_dense")
def _item(rec: Values, a: Arguments, result: Any) -> Result:
    if not rec.is_known(a["self"]):
        raise Escape(_VALUES)
    return []
