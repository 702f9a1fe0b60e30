"""Rules for operators that move numbers: views, joins, indices, copies and new tensors."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
from torch import Tensor

from envcoder_bench.shaping.tracing.program import Untraceable, Value, kind_of
from envcoder_bench.shaping.tracing.recorder import Recorder, Result, rule

Arguments = Dict[str, Any]
_PICKS = "picks single environments of the group"
_MIXES = "mixes the axis of environments with others"


def _view(*names: str) -> Callable[[Callable[[Recorder, Arguments, np.ndarray], np.ndarray]], None]:
    """Make the rule of a view from what it does to an array of the same shape, the axis of environments being 1."""

    def register(move: Callable[[Recorder, Arguments, np.ndarray], np.ndarray]) -> None:
        @rule(*names)
        def _(rec: Recorder, a: Arguments, result: Any) -> Result:
            value = rec.value(a["self"])
            return value.view(move(rec, a, value.index))

    return register


@_view("alias", "detach", "_conj", "_neg_view")
def _alias(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    return index


@_view("unsqueeze")
def _unsqueeze(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    return np.expand_dims(index, a["dim"] % (index.ndim + 1))


@_view("permute")
def _permute(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    return np.transpose(index, [dim % index.ndim for dim in a["dims"]])


@_view("transpose")
def _transpose(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    return np.swapaxes(index, a["dim0"], a["dim1"]) if index.ndim else index


@_view("t")
def _t(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    return index.T


@_view("select")
def _select(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    dim = rec.inner_axis(a["self"], a["dim"], _PICKS)
    return np.take(index, a["index"], axis=dim)


@_view("slice")
def _slice(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    dim = a["dim"] % index.ndim
    if dim == rec.axis(a["self"]):
        size = a["self"].shape[dim]
        if len(range(*slice(a["start"], a["end"], a["step"]).indices(size))) != size:
            raise Untraceable(_PICKS)
        return index
    return index[(slice(None),) * dim + (slice(a["start"], a["end"], a["step"]),)]


@_view("diagonal")
def _diagonal(rec: Recorder, a: Arguments, index: np.ndarray) -> np.ndarray:
    dims = [rec.inner_axis(a["self"], a[name], _MIXES) for name in ("dim1", "dim2")]
    return np.diagonal(index, a["offset"], dims[0], dims[1])


def _reshaped(rec: Recorder, source: Tensor, result: Tensor, index: np.ndarray) -> np.ndarray:
    """Reshape in C order; the environments must stay an axis with the same numbers before it."""
    old, new = rec.axis(source), rec.axis(result)
    if (old is None) != (new is None):
        raise Untraceable(_MIXES)
    if old is not None and np.prod(source.shape[:old]) != np.prod(result.shape[:new]):
        raise Untraceable(_MIXES)
    return index.reshape(rec.shape(result))


@rule("view", "_unsafe_view", "_reshape_alias", "reshape", "squeeze")
def _reshape(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    value = rec.value(a["self"])
    if "dtype" in a:
        raise Untraceable("looks at the bits of numbers")
    return value.view(_reshaped(rec, a["self"], result, value.index))


@rule("_reshape_copy", "view_copy")
def _reshape_copy(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    value = rec.value(a["self"])
    return Value.of(value.nodes.reshape(-1)[_reshaped(rec, a["self"], result, _count(value.nodes))], value.kind)


def _count(nodes: np.ndarray) -> np.ndarray:
    return np.arange(nodes.size).reshape(nodes.shape)


@rule("expand")
def _expand(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    value = rec.value(a["self"])
    return value.view(np.broadcast_to(value.index, rec.shape(result)))


@rule("split", "split_with_sizes", "unsafe_split")
def _split(rec: Recorder, a: Arguments, result: Any) -> Result:
    value = rec.value(a["self"])
    dim = rec.inner_axis(a["self"], a["dim"], _PICKS)
    ends = np.cumsum([part.shape[dim] for part in result])[:-1]
    return [value.view(part) for part in np.split(value.index, ends, axis=dim)]


@rule("unbind")
def _unbind(rec: Recorder, a: Arguments, result: Any) -> Result:
    value = rec.value(a["self"])
    dim = rec.inner_axis(a["self"], a["dim"], _PICKS)
    return [value.view(np.take(value.index, i, axis=dim)) for i in range(len(result))]


# copies


@rule("lift", "lift_fresh")
def _lift(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    """What torch.tensor(...) has just made, so that the call may write to it."""
    value = rec.value(a["self"])
    value.own = True
    return value


@rule("clone", "_to_copy", "contiguous")
def _copy_of(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    return rec.cast(Value.of(rec.nodes(a["self"]), rec.value(a["self"]).kind), kind_of(result.dtype))


@rule("copy")
def _copy(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    kind = kind_of(result.dtype)
    return Value.of(np.broadcast_to(rec.nodes(a["src"], kind), rec.shape(result)), kind)


@rule("cat")
def _cat(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    # an empty 1-d tensor joins anything
    parts = [x for x in a["tensors"] if not (x.dim() == 1 and x.numel() == 0)]
    if len(parts) == 1:
        return Value.of(rec.nodes(parts[0], kind_of(result.dtype)), kind_of(result.dtype))
    dim = rec.inner_axis(result, a["dim"], _MIXES)
    if any(x.dim() != result.dim() or rec.axis(x) == dim for x in parts):
        raise Untraceable(_MIXES)
    kind = kind_of(result.dtype)
    return Value.of(np.concatenate([rec.nodes(x, kind) for x in parts], axis=dim), kind)


@rule("stack")
def _stack(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    kind = kind_of(result.dtype)
    return Value.of(np.stack([rec.nodes(x, kind) for x in a["tensors"]], axis=a["dim"] % result.dim()), kind)


@rule("repeat")
def _repeat(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    value, axis, new = rec.value(a["self"]), rec.axis(a["self"]), rec.axis(result)
    lead = result.dim() - a["self"].dim()
    counts = list(a["repeats"])
    if axis is not None and counts[axis + lead] != 1:
        raise Untraceable(_MIXES)
    if axis is None and new is not None:
        counts[new] //= rec.rows
    return Value.of(np.tile(value.nodes, counts), value.kind)


@rule("flip")
def _flip(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    dims = tuple(rec.inner_axis(a["self"], dim, _MIXES) for dim in a["dims"])
    return Value.of(np.flip(rec.nodes(a["self"]), dims), rec.value(a["self"]).kind)


@rule("roll")
def _roll(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    if not a["dims"]:
        raise Untraceable(_MIXES)
    dims = [rec.inner_axis(a["self"], dim, _MIXES) for dim in a["dims"]]
    return Value.of(np.roll(rec.nodes(a["self"]), a["shifts"], dims), rec.value(a["self"]).kind)


# new tensors


def _filled(rec: Recorder, number: Any, result: Tensor) -> Value:
    kind = kind_of(result.dtype)
    return Value.of(np.broadcast_to(rec.nodes(number, kind), rec.shape(result)), kind)


@rule("zeros", "zeros_like", "new_zeros", "zero", "empty", "empty_like", "new_empty", "empty_strided")
def _zeros(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    return _filled(rec, 0, result)


@rule("ones", "ones_like", "new_ones")
def _ones(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    return _filled(rec, 1, result)


@rule("full", "full_like", "new_full")
def _full(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    return _filled(rec, a["fill_value"], result)


@rule("fill")
def _fill(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    return _filled(rec, a["value"], result)


@rule("scalar_tensor")
def _scalar_tensor(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    return _filled(rec, a["s"], result)


@rule("arange", "linspace", "logspace", "eye")
def _arange(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    """Numbers that are known, or, along the axis of environments, each environment's own."""
    kind, p = kind_of(result.dtype), rec.program
    if rec.axis(result) is None:
        known = [p.const(x, kind) for x in result.reshape(-1).tolist()]
        return Value.of(np.array(known, dtype=np.int64).reshape(result.shape), kind)
    if "steps" in a or "n" in a:
        raise Untraceable("numbers the environments in a way that depends on how many there are")
    lane, (own,) = p.add("lane", "i64"), rec.shape(result)
    step, start = (p.const(x, kind) for x in (a.get("step") or 1, a.get("start") or 0))
    places = [p.add("add", "i64", p.add("mul", "i64", lane, p.const(own, "i64")), p.const(i, "i64")) for i in range(own)]
    made = [p.add("add", kind, start, p.add("mul", kind, p.cast(place, kind), step)) for place in places]
    return Value.of(np.array(made), kind)


# indices


def _places(rec: Recorder, tensor: Tensor) -> np.ndarray:
    """The numbers of an index that does not depend on the state."""
    value = rec.value(tensor)
    nodes = value.nodes.reshape(-1)
    if value.kind == "b" or not all(rec.program.is_const(int(node)) for node in nodes):
        raise Untraceable("indexes with numbers of the state")
    return np.array([rec.program.nodes[int(node)].value for node in nodes]).reshape(value.index.shape)


def _indexed(rec: Recorder, source: Tensor, indices: List[Optional[Tensor]]) -> Tuple[Any, ...]:
    """A numpy index that does what torch's does."""
    key: List[Any] = []
    for dim, index in enumerate(indices):
        if index is None:
            key.append(slice(None))
        elif dim == rec.axis(source) or rec.axis(index) is not None:
            raise Untraceable(_PICKS)
        else:
            key.append(_places(rec, index))
    return tuple(key)


@rule("index")
def _index(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    nodes = rec.nodes(a["self"])
    return Value.of(nodes[_indexed(rec, a["self"], list(a["indices"]))], rec.value(a["self"]).kind)


@rule("index_select")
def _index_select(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    dim = rec.inner_axis(a["self"], a["dim"], _PICKS)
    return Value.of(np.take(rec.nodes(a["self"]), _places(rec, a["index"]), axis=dim), rec.value(a["self"]).kind)


@rule("index_put", "_index_put_impl")
def _index_put(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    """``x[mask] = number`` and ``x[:, [1, 2]] = y``."""
    kind, indices = kind_of(result.dtype), list(a["indices"])
    nodes, new = rec.nodes(a["self"], kind).copy(), rec.nodes(a["values"], kind)
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and rec.value(mask).kind == "b":
        if new.size != 1 or a.get("accumulate"):
            raise Untraceable("writes several numbers where a mask is True (torch.where does that without a mask)")
        chosen = rec.nodes(mask).reshape(rec.shape(mask) + (1,) * (result.dim() - mask.dim()))
        arrays = [chosen, new.reshape(()), nodes]
        return rec.elementwise(arrays, kind, lambda *x: rec.program.add("select", kind, *x), result)
    if a.get("accumulate"):
        raise Untraceable("adds to places of an index")
    nodes[_indexed(rec, a["self"], indices)] = new
    return Value.of(nodes, kind)


@rule("gather")
def _gather(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    """Pick one of the numbers along an axis; where the index depends on the state, by comparing it with each."""
    dim, kind, program = rec.inner_axis(a["self"], a["dim"], _PICKS), kind_of(result.dtype), rec.program
    source, index = rec.nodes(a["self"]), rec.nodes(a["index"], "i64")
    if any(source.shape[i] != index.shape[i] for i in range(source.ndim) if i != dim):
        raise Untraceable("gathers from a part of a tensor")
    made = np.empty(index.shape, dtype=np.int64)
    for place in np.ndindex(*index.shape):
        options = source[(*place[:dim], slice(None), *place[dim + 1 :])]
        picked = int(options[0])
        for i, option in enumerate(options[1:].tolist(), start=1):
            chosen = program.add("eq", "b", int(index[place]), program.const(i, "i64"))
            picked = program.add("select", kind, chosen, option, picked)
        made[place] = picked
    return Value.of(made, kind)


@rule("constant_pad_nd")
def _pad(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    nodes, kind = rec.nodes(a["self"]), kind_of(result.dtype)
    widths = [(0, 0)] * nodes.ndim
    for i in range(len(a["pad"]) // 2):
        widths[nodes.ndim - 1 - i] = (a["pad"][2 * i], a["pad"][2 * i + 1])
    axis = rec.axis(a["self"])
    if min(min(pair) for pair in widths) < 0 or (axis is not None and widths[axis] != (0, 0)):
        raise Untraceable(_PICKS)
    return Value.of(np.pad(nodes, widths, constant_values=rec.program.const(a["value"], kind)), kind)
