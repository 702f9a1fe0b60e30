"""Rules for operators that move numbers: views, joins, indices, copies and new tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from envcoder_bench.compile.program import FLOATS, Program, Untraceable, Value, kind_of
from envcoder_bench.compile.values import Arguments, Result, Values, rule

_PICKS = "picks single environments of the group"
_MIXES = "mixes the axis of environments with others"


def _slice(rec: Values, a: Arguments, index: np.ndarray) -> np.ndarray:
    dim = a["dim"] % index.ndim
    if dim == rec.axis(a["self"]):  # all environments, or every k-th of the entries of each, as in ``flat[1::2]``
        size = a["self"].shape[dim]
        kept = range(size)[slice(a["start"], a["end"], a["step"])]
        if len(kept) * kept.step != size or index.shape[dim] % kept.step:
            raise Untraceable(_PICKS)
        return index[(slice(None),) * dim + (slice(kept.start, None, kept.step),)]
    return index[(slice(None),) * dim + (slice(a["start"], a["end"], a["step"]),)]


def _diagonal(rec: Values, a: Arguments, index: np.ndarray) -> np.ndarray:
    dims = [rec.inner_axis(a["self"], a[name], _MIXES) for name in ("dim1", "dim2")]
    return np.diagonal(index, a["offset"], dims[0], dims[1])


def _unfold(rec: Values, a: Arguments, index: np.ndarray) -> np.ndarray:
    dim = rec.inner_axis(a["self"], a["dimension"], _MIXES)
    windows = np.lib.stride_tricks.sliding_window_view(index, a["size"], axis=dim)
    return windows[(slice(None),) * dim + (slice(None, None, a["step"]),)]


# effects of views on an array of the tensor's shape, in which the axis of environments has length 1
_VIEWS: dict[str, Callable[[Values, Arguments, np.ndarray], np.ndarray]] = {
    **dict.fromkeys(("alias", "detach", "_conj", "_neg_view"), lambda rec, a, x: x),
    "unsqueeze": lambda rec, a, x: np.expand_dims(x, a["dim"] % (x.ndim + 1)),
    "permute": lambda rec, a, x: np.transpose(x, [dim % x.ndim for dim in a["dims"]]),
    "transpose": lambda rec, a, x: np.swapaxes(x, a["dim0"], a["dim1"]) if x.ndim else x,
    "t": lambda rec, a, x: x.T,
    "select": lambda rec, a, x: np.take(x, a["index"], axis=rec.inner_axis(a["self"], a["dim"], _PICKS)),
    "slice": _slice,
    "diagonal": _diagonal,
    "unfold": _unfold,
}


def _define_view(name: str) -> None:
    @rule(name)
    def _(rec: Values, a: Arguments, result: Any) -> Result:
        value = rec.value(a["self"])
        return value.view(_VIEWS[name](rec, a, value.index))


for _name in _VIEWS:
    _define_view(_name)


def _reshaped(rec: Values, source: Tensor, result: Tensor, index: np.ndarray) -> np.ndarray:
    """Reshape in C order; the environments must stay an axis, with as many entries before it.

    The sample's number of environments is a prime, so that it divides the length of an axis as before.
    """
    old, new = rec.axis(source), rec.axis(result)
    if old is not None and np.prod(source.shape[:old]) != np.prod(result.shape[:new]):
        raise Untraceable(_MIXES)
    return index.reshape(rec.shape(result))


@rule("view", "_unsafe_view", "_reshape_alias", "squeeze")
def _reshape(rec: Values, a: Arguments, result: Tensor) -> Result:
    value = rec.value(a["self"])
    if "dtype" in a:
        raise Untraceable("looks at the bits of numbers")
    return value.view(_reshaped(rec, a["self"], result, value.index))


@rule("_reshape_copy", "view_copy")
def _reshape_copy(rec: Values, a: Arguments, result: Tensor) -> Result:
    value = rec.value(a["self"])
    return Value.of(value.nodes.reshape(-1)[_reshaped(rec, a["self"], result, _count(value.nodes))], value.kind)


def _count(nodes: np.ndarray) -> np.ndarray:
    return np.arange(nodes.size).reshape(nodes.shape)


@rule("expand")
def _expand(rec: Values, a: Arguments, result: Tensor) -> Result:
    value = rec.value(a["self"])
    return value.view(np.broadcast_to(value.index, rec.shape(result)))


@rule("split", "split_with_sizes", "unsafe_split")
def _split(rec: Values, a: Arguments, result: Any) -> Result:
    value = rec.value(a["self"])
    dim = rec.inner_axis(a["self"], a["dim"], _PICKS)
    ends = np.cumsum([part.shape[dim] for part in result])[:-1]
    return [value.view(part) for part in np.split(value.index, ends, axis=dim)]


@rule("unbind")
def _unbind(rec: Values, a: Arguments, result: Any) -> Result:
    value = rec.value(a["self"])
    dim = rec.inner_axis(a["self"], a["dim"], _PICKS)
    return [value.view(np.take(value.index, i, axis=dim)) for i in range(len(result))]


# copies


@rule("lift", "lift_fresh")
def _lift(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Mark the result of torch.tensor(...) as new, so that the call may write to it."""
    value = rec.value(a["self"])
    value.is_new = True
    return value


@rule("clone", "_to_copy", "to")
def _copy_of(rec: Values, a: Arguments, result: Tensor) -> Result:
    return rec.cast(Value.of(rec.nodes(a["self"]), rec.value(a["self"]).kind), kind_of(result.dtype))


@rule("copy")
def _copy(rec: Values, a: Arguments, result: Tensor) -> Result:
    kind = kind_of(result.dtype)
    return Value.of(np.broadcast_to(rec.nodes(a["src"], kind), rec.shape(result)), kind)


@rule("cat")
def _cat(rec: Values, a: Arguments, result: Tensor) -> Result:
    # torch.cat ignores empty 1-d tensors
    parts = [x for x in a["tensors"] if not (x.dim() == 1 and x.numel() == 0)]
    if len(parts) == 1:
        return Value.of(rec.nodes(parts[0], kind_of(result.dtype)), kind_of(result.dtype))
    dim = rec.inner_axis(result, a["dim"], _MIXES)
    if any(rec.axis(x) == dim for x in parts):
        raise Untraceable(_MIXES)
    kind = kind_of(result.dtype)
    return Value.of(np.concatenate([rec.nodes(x, kind) for x in parts], axis=dim), kind)


@rule("stack")
def _stack(rec: Values, a: Arguments, result: Tensor) -> Result:
    kind = kind_of(result.dtype)
    return Value.of(np.stack([rec.nodes(x, kind) for x in a["tensors"]], axis=a["dim"] % result.dim()), kind)


@rule("repeat")
def _repeat(rec: Values, a: Arguments, result: Tensor) -> Result:
    value, axis, new = rec.value(a["self"]), rec.axis(a["self"]), rec.axis(result)
    lead = result.dim() - a["self"].dim()
    counts = list(a["repeats"])
    if axis is not None and counts[axis + lead] != 1:
        raise Untraceable(_MIXES)
    if axis is None and new is not None:
        counts[new] //= rec.rows
    return Value.of(np.tile(value.nodes, counts), value.kind)


@rule("flip")
def _flip(rec: Values, a: Arguments, result: Tensor) -> Result:
    dims = tuple(rec.inner_axis(a["self"], dim, _MIXES) for dim in a["dims"])
    return Value.of(np.flip(rec.nodes(a["self"]), dims), rec.value(a["self"]).kind)


# new tensors

# the number with which an operator fills a tensor
_FILLS: dict[str, Callable[[Arguments], Any]] = {
    **dict.fromkeys(
        ("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty", "empty_strided"), lambda a: 0
    ),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda a: 1),
    **dict.fromkeys(("full", "full_like", "new_full"), lambda a: a["fill_value"]),
    "fill": lambda a: a["value"],
    "scalar_tensor": lambda a: a["s"],
}


def _define_fill(name: str) -> None:
    @rule(name)
    def _(rec: Values, a: Arguments, result: Tensor) -> Result:
        kind = kind_of(result.dtype)
        return Value.of(np.broadcast_to(rec.nodes(_FILLS[name](a), kind), rec.shape(result)), kind)


for _name in _FILLS:
    _define_fill(_name)


def _line(p: Program, kind: str, x: int, factor: float, start: float) -> int:
    """Compute ``factor * x + start`` without neutral operations, so that ``torch.arange(n)`` is just the lanes."""
    x = x if factor == 1 else p.add("mul", kind, x, p.const(factor, kind))
    return x if start == 0 else p.add("add", kind, x, p.const(start, kind))


def _constants(rec: Values, result: Tensor) -> Value:
    """Return the numbers of a tensor without an axis of environments as constants."""
    kind = kind_of(result.dtype)
    nodes = [rec.program.const(x, kind) for x in result.reshape(-1).tolist()]
    return Value.of(np.array(nodes, dtype=np.int64).reshape(result.shape), kind)


@rule("arange", "logspace", "eye")
def _arange(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Return constants, or, along the axis of environments, a number that depends on the lane."""
    kind, p = kind_of(result.dtype), rec.program
    if rec.axis(result) is None:
        return _constants(rec, result)
    if "steps" in a or "n" in a:
        raise Untraceable("numbers the environments in a way that depends on how many there are")
    lane, (length,), start, step = p.add("lane", "i64"), rec.shape(result), a.get("start") or 0, a.get("step") or 1
    places = [lane] if length == 1 else [_line(p, "i64", lane, length, i) for i in range(length)]
    nodes = [_line(p, kind, p.cast(position, kind), step, start) for position in places]
    return Value.of(np.array(nodes), kind)


@rule("linspace")
def _linspace(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Compute the first half from the start and the second half from the end, as torch does."""
    kind, p = kind_of(result.dtype), rec.program
    if rec.axis(result) is None:
        return _constants(rec, result)
    if rec.shape(result) != (1,) or kind not in FLOATS:
        raise Untraceable("spreads numbers over more than the environments")
    start, end = (p.const(float(a[name]), kind) for name in ("start", "end"))
    lane, rows, one = p.add("lane", "i64"), p.add("rows", "i64"), p.const(1, "i64")
    last = p.add("sub", "i64", rows, one)
    step = p.add("div", kind, p.add("sub", kind, end, start), p.cast(last, kind))
    up = p.add("add", kind, start, p.add("mul", kind, step, p.cast(lane, kind)))
    down = p.add("sub", kind, end, p.add("mul", kind, step, p.cast(p.add("sub", "i64", last, lane), kind)))
    early = p.add("lt", "b", lane, p.add("floordiv", "i64", rows, p.const(2, "i64")))
    node = p.add("select", kind, early, up, down)
    return Value.of(np.array([p.add("select", kind, p.add("eq", "b", rows, one), start, node)]), kind)


def _define_triangle(name: str, keep: Callable[[np.ndarray, int], np.ndarray]) -> None:
    @rule(name)
    def _(rec: Values, a: Arguments, result: Tensor) -> Result:
        if rec.axis(result) in (result.dim() - 2, result.dim() - 1):
            raise Untraceable(_MIXES)
        nodes, kind = rec.nodes(a["self"]), kind_of(result.dtype)
        kept = keep(np.ones(nodes.shape[-2:], dtype=bool), a["diagonal"])
        return Value.of(np.where(kept, nodes, rec.program.const(0, kind)), kind)


_define_triangle("tril", np.tril)
_define_triangle("triu", np.triu)


@rule("constant_pad_nd")
def _pad(rec: Values, a: Arguments, result: Tensor) -> Result:
    nodes, kind = rec.nodes(a["self"]), kind_of(result.dtype)
    widths = [(0, 0)] * nodes.ndim
    for i in range(len(a["pad"]) // 2):
        widths[nodes.ndim - 1 - i] = (a["pad"][2 * i], a["pad"][2 * i + 1])
    axis = rec.axis(a["self"])
    if min(min(pair) for pair in widths) < 0 or (axis is not None and widths[axis] != (0, 0)):
        raise Untraceable(_PICKS)
    return Value.of(np.pad(nodes, widths, constant_values=rec.program.const(a["value"], kind)), kind)
