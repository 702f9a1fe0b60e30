"""Rules for operators that index by tensors."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from torch import Tensor

from envcoder_bench.compile.program import Escape, Untraceable, Value, kind_of
from envcoder_bench.compile.recorder import Arguments, Recorder, Result, rule

_PICKS = "picks single environments of the group"


def _places(rec: Recorder, tensor: Tensor) -> np.ndarray:
    """Return the numbers of an index that does not depend on the state."""
    value = rec.value(tensor)
    if not rec.is_known(tensor):
        raise Untraceable("indexes with numbers of the state")
    numbers = [rec.program.nodes[int(node)].value for node in value.nodes.reshape(-1)]
    return np.array(numbers, dtype=bool if value.kind == "b" else np.int64).reshape(value.index.shape)


def _indexed(rec: Recorder, source: Tensor, indices: list[Tensor | None]) -> tuple[Any, ...]:
    """Return the numpy index that corresponds to torch's."""
    key: list[Any] = []
    for dim, index in enumerate(indices):
        if index is None:
            key.append(slice(None))
        elif rec.value(index).kind == "b" and (rec.axis(index) is not None or index.dim() > 1):
            raise Escape("reads where a mask is True (torch.where keeps one row for every environment)")
        elif dim == rec.axis(source) or rec.axis(index) is not None:
            raise Untraceable(_PICKS)
        else:
            key.append(_places(rec, index))
    return tuple(key)


@rule("index")
def _index(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    source, indices, value = a["self"], list(a["indices"]), rec.value(a["self"])
    axis = rec.axis(source)
    if axis is not None and axis < len(indices) and _is_lanes(rec, indices[axis]):
        nodes = _picked(rec, source, axis, indices, value.kind)
    else:
        nodes = value.nodes[_indexed(rec, source, indices)]
    return Value.of(nodes, value.kind)


def _is_lanes(rec: Recorder, index: Tensor | None) -> bool:
    """Return whether an index is that of all environments in order, ``torch.arange(n)``."""
    if index is None or rec.axis(index) is None:
        return False
    return all(rec.program.nodes[int(node)].op == "lane" for node in rec.nodes(index).reshape(-1))


def _picked(rec: Recorder, source: Tensor, axis: int, indices: list[Tensor | None], kind: str) -> np.ndarray:
    """``x[torch.arange(n), index]``: select each environment's number by comparing its index with every position."""
    p, nodes, given = rec.program, rec.nodes(source), [i for i, index in enumerate(indices) if index is not None]
    wanted = [rec.nodes(indices[i], "i64") for i in given if i != axis]  # type: ignore[arg-type]
    shape = np.broadcast_shapes(*(rec.shape(indices[i]) for i in given))  # type: ignore[arg-type]
    made: np.ndarray | None = None
    for place in itertools.product(*(range(nodes.shape[i]) for i in given if i != axis)):
        at = dict(zip([i for i in given if i != axis], place))
        key = [slice(None) if index is None else np.full(shape, at.get(i, 0)) for i, index in enumerate(indices)]
        option = nodes[tuple(key)]
        if made is None:
            made = option
            continue
        together = given == list(range(given[0], given[-1] + 1))  # else numpy and torch put their axes first
        before = given[0] if together else 0
        after = (1,) * (option.ndim - before - len(shape))
        here = []
        for own, number, dim in zip(wanted, place, at):
            same = (number, number - nodes.shape[dim])
            found = [
                p.add("or", "b", *(p.add("eq", "b", int(x), p.const(k, "i64")) for k in same))
                for x in np.broadcast_to(own, shape).reshape(-1)
            ]
            here.append(np.array(found, dtype=np.int64).reshape(shape + after))
        flat = [np.broadcast_to(x, option.shape).reshape(-1).tolist() for x in (*here, option, made)]
        chosen = [
            p.add("select", kind, functools.reduce(lambda u, v: p.add("and", "b", u, v), row[:-2]), row[-2], row[-1])
            for row in zip(*flat)
        ]
        made = np.array(chosen, dtype=np.int64).reshape(option.shape)
    return nodes if made is None else made


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
        rest = result.dim() - mask.dim()
        one_row = new.size == 1 or a["values"].dim() <= rest
        if rec.axis(a["values"]) is not None or not one_row or a.get("accumulate"):
            raise Untraceable("writes several rows where a mask is True (torch.where does that without a mask)")
        chosen = rec.nodes(mask).reshape(rec.shape(mask) + (1,) * rest)
        arrays = [chosen, new.reshape(()) if new.size == 1 else new, nodes]
        return rec.elementwise(arrays, kind, lambda *x: rec.program.add("select", kind, *x), result)
    if a.get("accumulate"):
        raise Untraceable("adds to places of an index")
    nodes[_indexed(rec, a["self"], indices)] = new
    return Value.of(nodes, kind)


@rule("gather")
def _gather(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    """Gather along an axis; an index that depends on the state is compared with every position."""
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


@rule("index_fill")
def _index_fill(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    dim, kind = rec.inner_axis(a["self"], a["dim"], _PICKS), kind_of(result.dtype)
    nodes = rec.nodes(a["self"], kind).copy()
    nodes[(slice(None),) * dim + (_places(rec, a["index"]),)] = rec.nodes(a["value"], kind)
    return Value.of(nodes, kind)


@rule("scatter")
def _scatter(rec: Recorder, a: Arguments, result: Tensor) -> Result:
    """Scatter along an axis; an index that depends on the state is compared with every position."""
    dim, kind, p = rec.inner_axis(a["self"], a["dim"], _PICKS), kind_of(result.dtype), rec.program
    made, index = rec.nodes(a["self"], kind).copy(), rec.nodes(a["index"], "i64")
    if a.get("reduce") is not None or any(made.shape[i] != index.shape[i] for i in range(made.ndim) if i != dim):
        raise Untraceable("scatters to a part of a tensor")
    new = rec.nodes(a["value"] if "value" in a else a["src"], kind)
    new = np.broadcast_to(new, index.shape) if new.ndim == 0 else new
    for place in np.ndindex(*index.shape):
        for i in range(made.shape[dim]):
            there = (*place[:dim], i, *place[dim + 1 :])
            chosen = p.add("eq", "b", int(index[place]), p.const(i, "i64"))
            made[there] = p.add("select", kind, chosen, int(new[place]), int(made[there]))
    return Value.of(made, kind)
