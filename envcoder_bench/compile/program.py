"""A traced function as a program: the scalar operations of one environment, without tensors and Python code."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

Number = int | float | bool
Obstacle = tuple[int | None, str]  # the line at which a function cannot be traced, and the reason

# the kinds of numbers in a program
KINDS: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.bool: "b",
}
FLOATS, INTEGERS = ("f32", "f64"), ("i64", "i32", "u8")
_ALL = (*FLOATS, *INTEGERS, "b")
ACTION = "action"  # the name of the policy's action, beside the state's keys
MAX_NODES = 30_000  # compiling more takes longer than the kernel saves


# operations whose arguments have the node's kind: number of arguments, and allowed kinds
OPERATIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"), (1, FLOATS)),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "erf", "erfc"), (1, FLOATS)),
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), (1, (*FLOATS, *INTEGERS))),
    "neg": (1, _ALL),
    "abs": (1, (*FLOATS, *INTEGERS)),
    **dict.fromkeys(("add", "sub", "mul", "maximum", "minimum"), (2, _ALL)),
    **dict.fromkeys(("div", "fmod"), (2, (*FLOATS, *INTEGERS))),
    **dict.fromkeys(("pow", "atan2"), (2, FLOATS)),
    **dict.fromkeys(("remainder", "floordiv", "shl", "shr"), (2, INTEGERS)),
    **dict.fromkeys(("and", "or", "xor"), (2, (*INTEGERS, "b"))),
    "not": (1, (*INTEGERS, "b")),
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class Untraceable(Exception):
    """A function does something that a program cannot; the message completes "it ..."."""


class Escape(Untraceable):
    """An untraceable number affects more than one tensor: Python's control flow, or a tensor that outlives the call."""


class Node(NamedTuple):
    """One scalar operation.

    ``op`` is an operation of ``c_code.py``, or one of: ``load`` (a number of the state: ``name``, ``column``),
    ``const`` (``value``), ``lane`` (the environment's index in its group), ``rows`` (the number of environments of the
    group), ``seed`` and ``step`` (of the random numbers), ``unknown`` (a number that cannot be traced, for the reason
    ``name``). ``args`` are earlier nodes.
    """

    op: str
    kind: str
    args: tuple[int, ...] = ()
    value: Number = 0
    name: str = ""
    column: int = 0


@dataclass
class Output:
    """A tensor that a function returns: its numbers for one environment in C order, and their kind."""

    nodes: list[int]
    kind: str


@dataclass
class Program:
    """The nodes of a function, in an order in which they can be computed, and its outputs by name.

    Attributes:
        nodes, outputs: the nodes; the outputs by name.
        lines: for each node, the line of the function's file it was recorded from, if known.
        line: the line of the nodes that are added next.
        sized: whether the function may depend on the number of environments.
        verified: pairs (seed, environments of a group) for which its kernel was compared with the function.
        codes: its C code, by how the outputs are stored.
    """

    nodes: list[Node] = field(default_factory=list)
    outputs: dict[str, Output] = field(default_factory=dict)
    lines: list[int | None] = field(default_factory=list, repr=False, compare=False)
    line: int | None = field(default=None, repr=False, compare=False)
    sized: bool = field(default=False, repr=False, compare=False)
    verified: set[tuple[int, int]] = field(default_factory=set)
    codes: dict[Any, Any] = field(default_factory=dict, repr=False)
    _known: dict[Node, int] = field(default_factory=dict, repr=False)

    def add(self, op: str, kind: str, *args: int, **operands: object) -> int:
        """Add a node, or return an equal one that exists.

        Floating-point constants are never shared, so that programs that differ only in constants have the same
        structure, and thus one kernel.
        """
        node = Node(op, kind, args, **operands)  # type: ignore[arg-type]
        if op == "const" and kind in FLOATS:
            return self._append(node)
        if node not in self._known:
            self._known[node] = self._append(node)
        return self._known[node]

    def _append(self, node: Node) -> int:
        if len(self.nodes) >= MAX_NODES:
            raise Untraceable(f"computes more than {MAX_NODES} numbers for one environment")
        self.nodes.append(node)
        self.lines.append(self.line)
        return len(self.nodes) - 1

    def unknown(self, kind: str, reason: str) -> int:
        """Add a number that cannot be traced; outputs that do not depend on it are unaffected."""
        return self._append(Node("unknown", kind, name=reason))

    def state_names(self) -> set[str]:
        """Return the keys of the state that the program reads."""
        return {node.name for node in self.nodes if node.op == "load"}

    def const(self, value: Number, kind: str) -> int:
        if kind not in FLOATS:
            value = int(value)
        return self.add("const", kind, value=value)

    def is_const(self, node: int) -> bool:
        return self.nodes[node].op == "const"

    def cast(self, node: int, kind: str) -> int:
        """Convert a node to another kind; constants are converted immediately."""
        origin = self.nodes[node]
        if origin.kind == kind:
            return node
        if origin.op == "const":
            return self.const(convert(origin.value, kind), kind)
        return self.add("cast", kind, node)


def to_plain(program: Program) -> dict[str, Any]:
    """Return a program as JSON's types."""
    nodes = []
    for node in program.nodes:
        value = float(node.value) if node.kind in FLOATS else int(node.value)
        nodes.append(node._replace(value=value) if node.op == "const" else node)
    outputs = {name: [output.nodes, output.kind] for name, output in program.outputs.items()}
    return {"nodes": nodes, "outputs": outputs}


def reachable(program: Program, roots: Sequence[int]) -> list[int]:
    """Return the nodes that the roots depend on, in order."""
    seen, todo = set(roots), list(roots)
    while todo:
        for arg in program.nodes[todo.pop()].args:
            if arg not in seen:
                seen.add(arg)
                todo.append(arg)
    return sorted(seen)


def pruned(program: Program) -> Program:
    """Return the program with only the nodes that its outputs depend on."""
    order = reachable(program, [node for output in program.outputs.values() for node in output.nodes])
    position = {node: i for i, node in enumerate(order)}
    nodes = [program.nodes[i]._replace(args=tuple(position[arg] for arg in program.nodes[i].args)) for i in order]
    outputs = {
        name: Output([position[i] for i in result.nodes], result.kind) for name, result in program.outputs.items()
    }
    return Program(nodes, outputs, [program.lines[i] for i in order] if program.lines else [])


def convert(value: Number, kind: str) -> Number:
    """Convert a Python number as torch does."""
    dtype = next(dtype for dtype, name in KINDS.items() if name == kind)
    return torch.tensor(value).to(dtype).item()


@dataclass
class Value:
    """A tensor of a traced function: its nodes and their positions.

    Attributes:
        storage: the nodes of the tensor's storage; tensors that share it are views of each other.
        index: positions in ``storage``, in the tensor's shape for one environment (the axis of environments has length
            1, or the number of entries per environment).
        kind: the kind of its numbers.
        is_new: whether the traced call created it; tensors that outlive the call must not be written to.
        unknown: why it cannot be traced, else empty; other tensors may share its storage, so that writes to it cannot
            be traced.
    """

    storage: list[int]
    index: np.ndarray
    kind: str
    is_new: bool = True
    unknown: str = ""

    @classmethod
    def of(cls, nodes: np.ndarray, kind: str) -> Value:
        """Create a new tensor of these nodes."""
        return cls([int(node) for node in nodes.reshape(-1)], np.arange(nodes.size).reshape(nodes.shape), kind)

    @property
    def nodes(self) -> np.ndarray:
        """The nodes in the tensor's shape."""
        return np.asarray(self.storage, dtype=np.int64)[self.index]

    def view(self, index: np.ndarray) -> Value:
        """Return a tensor that shares this one's storage."""
        return Value(self.storage, index, self.kind, self.is_new, self.unknown)

    def write(self, nodes: np.ndarray) -> None:
        """Overwrite the numbers in place, as seen by all views."""
        if self.unknown:
            raise Escape(self.unknown)
        if not self.is_new:
            raise Escape("changes a tensor that outlives the call")
        for position, node in zip(self.index.reshape(-1), np.broadcast_to(nodes, self.index.shape).reshape(-1)):
            self.storage[position] = int(node)


def kind_of(dtype: torch.dtype) -> str:
    if dtype not in KINDS:
        raise Untraceable(f"computes with {dtype}")
    return KINDS[dtype]


@functools.cache  # called thousands of times for a few shapes
def env_axis(shape: tuple[int, ...], rows: int) -> int | None:
    """Return the axis of environments: the only one whose length is a multiple of ``rows``.

    It may hold several entries per environment, one environment after the other, as in ``x.view(n * 4, 3)``.
    """
    axes = [axis for axis, size in enumerate(shape) if size and size % rows == 0]
    if len(axes) > 1:
        raise Untraceable("makes a tensor with an axis of environments twice")
    return axes[0] if axes else None
