"""Interpret a program with torch, operation by operation, if the function's own code is not available."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter

import torch
from torch import Tensor

from envcoder_bench.compile.program import ACTION, COMPARISONS, FLOATS, KINDS, OPERATIONS, Node, Program, reachable
from envcoder_bench.core import stream
from envcoder_bench.shaping.kinds import VALUE, Kind, Part

DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
_BITS = {"i64": 64, "i32": 32, "u8": 8, "b": 8}

_NAMES = {"not": "bitwise_not", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"}  # torch's names
UNARY: dict[str, Callable[..., Tensor]] = {
    op: getattr(torch, _NAMES.get(op, op)) for op, (count, _) in OPERATIONS.items() if count == 1
}
BINARY: dict[str, Callable[..., Tensor]] = {
    op: getattr(torch, _NAMES.get(op, op))
    for op in (*(op for op, (count, _) in OPERATIONS.items() if count == 2), *COMPARISONS)
    if hasattr(torch, _NAMES.get(op, op))
}
_DIVISIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floordiv": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
}


class Interpreter:
    """Computes the outputs of a program for the environments of one group.

    The results equal those of the program's kernel, except for rounding in functions such as ``sin``. Random numbers
    come from the stream in use (``stream.use``).

    Args:
        precise: whether to compute, and return, float64 instead of float32.
    """

    def __init__(self, program: Program, precise: bool = False) -> None:
        self._program = program
        self._dtypes = {**DTYPES, **(dict.fromkeys(FLOATS, torch.float64) if precise else {})}
        outputs = {node for output in program.outputs.values() for node in output.nodes}
        order = reachable(program, sorted(outputs))
        last = {arg: node for node in order for arg in program.nodes[node].args}
        # each node with its position, and the nodes that are not read after it
        done: dict[int, list[int]] = {}
        for arg, node in last.items():
            if arg not in outputs:
                done.setdefault(node, []).append(arg)
        self._steps = [(node, program.nodes[node], done.get(node, [])) for node in order]
        self._constants: dict[torch.device, dict[int, Tensor]] = {}

    def __call__(self, state: Mapping[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """Compute every output that is not empty: ``(n, width)``.

        Args:
            state: ``(n, ...)`` tensors by name.
            action: the policy's action, ``(n, action_dim)``.
        """
        n, device = action.shape[0], action.device
        values = dict(self._numbers(device))
        rows: dict[str, Tensor] = {}
        # nodes in the program's order; a value is deleted after its last use
        for slot, node, done in self._steps:
            if node.op == "load":
                if node.name not in rows:
                    rows[node.name] = (action if node.name == ACTION else state[node.name]).reshape(n, -1)
                column = rows[node.name][:, node.column]
                values[slot] = column.to(self._dtypes["f32"]) if column.dtype == torch.float32 else column
            elif node.op == "lane":
                values[slot] = torch.arange(n, device=device)
            elif node.op == "rows":
                values[slot] = torch.full((), n, device=device)
            elif node.op in ("seed", "step"):
                values[slot] = torch.as_tensor(_counter(node.op), dtype=torch.int64, device=device)
            elif node.op != "const":
                values[slot] = _compute(node, [values[arg] for arg in node.args], self._dtypes)
            for arg in done:
                del values[arg]
        return {
            name: torch.stack([values[node].expand(n) for node in output.nodes], dim=1).to(self._dtypes[output.kind])
            for name, output in self._program.outputs.items()
            if output.nodes
        }

    def _numbers(self, device: torch.device) -> dict[int, Tensor]:
        """Return the constants as tensors, which are created once."""
        if device not in self._constants:
            self._constants[device] = {
                slot: torch.full((), node.value, dtype=self._dtypes[node.kind], device=device)
                for slot, node, _ in self._steps
                if node.op == "const"
            }
        return self._constants[device]


def _counter(name: str) -> object:
    current = stream.current()
    if current is None:
        raise RuntimeError("draws random numbers outside a stream")
    return getattr(current, name)


def _compute(node: Node, x: list[Tensor], dtypes: Mapping[str, torch.dtype]) -> Tensor:
    op, kind = node.op, node.kind
    if op == "cast":
        return x[0].to(dtypes[kind])
    if op == "select":
        return torch.where(x[0], x[1], x[2])
    if kind == "b" and op in ("add", "sub", "mul", "neg"):  # C converts bool to int
        x = [each.long() for each in x]
        return (UNARY[op](*x) if op in UNARY else BINARY[op](*x)) != 0
    if kind not in FLOATS:
        if op in _DIVISIONS:
            return _divided(op, kind, *x)
        if op in ("shl", "shr"):
            in_range = (x[1] >= 0) & (x[1] < _BITS[kind])
            if op == "shl":
                shifted = torch.bitwise_left_shift(x[0], torch.where(in_range, x[1], 0))
                return torch.where(in_range, shifted, 0).to(DTYPES[kind])
            return torch.bitwise_right_shift(x[0], torch.where(in_range, x[1], _BITS[kind] - 1).to(DTYPES[kind]))
        if op in ("floor", "ceil", "trunc", "round"):
            return x[0]
    return UNARY[op](*x) if op in UNARY else BINARY[op](*x)


def _divided(op: str, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """Divide integers; division by zero, and of the lowest number by -1, would crash the process."""
    zero, minus_one = y == 0, (y == -1) if kind != "u8" else torch.zeros_like(y, dtype=torch.bool)
    quotient = _DIVISIONS[op](x, torch.where(zero | minus_one, torch.ones_like(y), y))
    turned = -x if op in ("div", "floordiv") else torch.zeros_like(x)
    return torch.where(zero, torch.zeros_like(quotient), torch.where(minus_one, turned, quotient))


# a program in the place of a function

PARAMETERS = tuple(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("state_dict", "action"))


class ProgramCall:
    """A callable that interprets a function's program, and returns results in the form of the function's.

    Args:
        parts: the tensors that functions of this kind return.
        components: the names of a reward's components.
    """

    def __init__(self, kind: Kind, program: Program, parts: Mapping[str, Part], components: Sequence[str]) -> None:
        self._interpreter, self._parts, self._is_dict = Interpreter(program), parts, kind.shape is None
        self._components = components if kind.components else ()

    def __call__(self, state_dict: Mapping[str, Tensor], action: Tensor) -> object:
        with torch.no_grad():
            outputs = self._interpreter(state_dict, action)
        n = next(x.shape[0] for x in outputs.values())
        parts = {key: outputs[key].reshape(n, *part.shape) for key, part in self._parts.items() if key in outputs}
        if self._is_dict:
            return parts
        if not self._components:
            return parts[VALUE]
        return parts[VALUE], {name: outputs[f"component{i}"][:, 0] for i, name in enumerate(self._components)}
