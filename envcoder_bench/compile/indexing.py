"""Rules for operators that index by tensors."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.compile.program import Escape, Untraceable, Value, env_axis, kind_of
from envcoder_bench.compile.values import Arguments, Result, Values, rule

_PICKS = "picks single environments of the group"
_MASKS = ("b", "u8")  # kinds of an index that is a mask


def _constant_index(rec: Values, tensor: Tensor) -> np.ndarray:
    """Return the numbers of an index that does not depend on the state."""
    value = rec.value(tensor)
    if not rec.is_known(tensor):
        raise Untraceable("indexes with numbers of the state")
    numbers = [rec.program.nodes[int(node)].value for node in value.nodes.reshape(-1)]
    return np.array(numbers, dtype=bool if value.kind in _MASKS else np.int64).reshape(value.index.shape)


def _indexed(rec: Values, source: Tensor, indices: list[Tensor | None]) -> tuple[Any, ...]:
    """Return the numpy index that corresponds to torch's."""
    key: list[Any] = []
    for dim, index in enumerate(indices):
        if index is None:
            key.append(slice(None))
        elif rec.value(index).kind in _MASKS and (rec.axis(index) is not None or index.dim() > 1):
            raise Escape("reads where a mask is True (torch.where keeps one row for every environment)")
        elif dim == rec.axis(source) or rec.axis(index) is not None:
            raise Untraceable(_PICKS)
        else:
            key.append(_constant_index(rec, index))
    return tuple(key)


@rule("index")
def _index(rec: Values, a: Arguments, result: Tensor) -> Result:
    source, indices, value = a["self"], list(a["indices"]), rec.value(a["self"])
    if _is_within(rec, source, indices):
        return Value.of(_picked(rec, source, indices), value.kind)
    return Value.of(value.nodes[_indexed(rec, source, indices)], value.kind)


def _is_within(rec: Values, source: Tensor, indices: list[Tensor | None]) -> bool:
    """Return whether each environment's numbers index its own row, ``x[torch.arange(n), index]``, or a table."""
    axis, tensors = rec.axis(source), [index for index in indices if index is not None]
    if any(rec.value(index).kind in _MASKS for index in tensors):
        return False
    if axis is None:
        return any(rec.axis(index) is not None for index in tensors)
    return axis < len(indices) and rec.shape(source)[axis] == 1 and _is_lanes(rec, indices[axis])


def _is_lanes(rec: Values, index: Tensor | None) -> bool:
    """Return whether an index is that of all environments in order, ``torch.arange(n)``."""
    if index is None or rec.axis(index) is None:
        return False
    return all(rec.program.nodes[int(node)].op == "lane" for node in rec.nodes(index).reshape(-1))


def _positions_within(
    rec: Values, source: Tensor, indices: list[Tensor | None]
) -> Iterator[tuple[tuple[Any, ...], np.ndarray | None]]:
    """Yield each position that an index can select, as a numpy index, and nodes that say whether it is selected.

    The nodes broadcast to the numbers at the position. They are None if the index selects environments only.
    """
    p, axis, size = rec.program, rec.axis(source), rec.shape(source)
    by_axis = {i: index for i, index in enumerate(indices) if index is not None}
    env_axis(tuple(torch.broadcast_shapes(*(x.shape for x in by_axis.values()))), rec.rows)  # raises if there are two
    shape = np.broadcast_shapes(*(rec.shape(x) for x in by_axis.values()))
    wanted = {i: np.broadcast_to(rec.nodes(x, "i64"), shape) for i, x in by_axis.items() if i != axis}
    for i, numbers in wanted.items():
        for node in numbers.reshape(-1).tolist():
            rec.within(node, -size[i], size[i])
    together = max(by_axis) - min(by_axis) < len(by_axis)  # else numpy and torch put the axes of the index first
    after = (1,) * (len(size) - (max(by_axis) + 1 if together else len(by_axis)))
    for position in itertools.product(*(range(size[i]) for i in wanted)):
        at = dict(zip(wanted, position))
        key = tuple(slice(None) if x is None else np.full(shape, at.get(i, 0)) for i, x in enumerate(indices))
        tests = [
            [p.add("or", "b", *(p.add("eq", "b", node, p.const(k, "i64")) for k in (number, number - size[i])))
             for node in wanted[i].reshape(-1).tolist()]
            for i, number in at.items()
        ]  # fmt: skip
        selected = [functools.reduce(lambda x, y: p.add("and", "b", x, y), row) for row in zip(*tests)]
        yield key, np.array(selected, dtype=np.int64).reshape(shape + after) if tests else None


def _picked(rec: Values, source: Tensor, indices: list[Tensor | None]) -> np.ndarray:
    """Select each environment's numbers by comparing its index with every position."""
    nodes, kind = rec.nodes(source), rec.value(source).kind
    picked = None
    for key, selected in _positions_within(rec, source, indices):
        option = nodes[key]
        if picked is not None and selected is not None:
            rows = zip(*(np.broadcast_to(x, option.shape).reshape(-1).tolist() for x in (selected, option, picked)))
            option = np.array([rec.program.add("select", kind, *row) for row in rows]).reshape(option.shape)
        picked = option
    return nodes if picked is None else picked


def _put(rec: Values, source: Tensor, indices: list[Tensor | None], nodes: np.ndarray, new: np.ndarray) -> None:
    """Write ``new`` to the ``nodes`` that each environment's index selects; a later entry overwrites an earlier one."""
    kind, order = kind_of(source.dtype), np.arange(nodes.size).reshape(nodes.shape)
    for key, selected in _positions_within(rec, source, indices):
        targets = order[key]
        values = np.broadcast_to(new, targets.shape).reshape(-1).tolist()
        tests: list[int | None] = [None] * targets.size
        if selected is not None:
            tests = np.broadcast_to(selected, targets.shape).reshape(-1).tolist()
        for target, test, x in zip(targets.reshape(-1), tests, values):
            old = int(nodes.flat[target])
            nodes.flat[target] = x if test is None else rec.program.add("select", kind, test, x, old)


@rule("index_select")
def _index_select(rec: Values, a: Arguments, result: Tensor) -> Result:
    source, dim, kind = a["self"], rec.inner_axis(a["self"], a["dim"], _PICKS), rec.value(a["self"]).kind
    indices = [*[None] * dim, a["index"]]
    if _is_within(rec, source, indices):
        for node in rec.nodes(a["index"], "i64").reshape(-1).tolist():
            rec.within(node, 0, rec.shape(source)[dim])
        return Value.of(_picked(rec, source, indices), kind)
    return Value.of(np.take(rec.nodes(source), _constant_index(rec, a["index"]), axis=dim), kind)


@rule("index_put", "_index_put_impl")
def _index_put(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Write ``x[mask] = number``, ``x[:, [1, 2]] = y`` and ``x[torch.arange(n), index] = y``."""
    kind, indices = kind_of(result.dtype), list(a["indices"])
    nodes, new = rec.nodes(a["self"], kind).copy(), rec.nodes(a["values"], kind)
    # a mask chooses between old and new for every number
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and rec.value(mask).kind == "b":
        rest = result.dim() - mask.dim()
        one_row = new.size == 1 or a["values"].dim() <= rest
        if rec.axis(a["values"]) is not None or not one_row or a.get("accumulate"):
            raise Untraceable("writes several rows where a mask is True (torch.where does that without a mask)")
        chosen = rec.nodes(mask).reshape(rec.shape(mask) + (1,) * rest)
        arrays = [chosen, new.reshape(()) if new.size == 1 else new, nodes]
        return rec.elementwise(arrays, kind, lambda *x: rec.program.add("select", kind, *x), result)
    # indices select within each environment, or in a tensor without environments
    if a.get("accumulate"):
        raise Untraceable("adds to places of an index")
    if rec.axis(a["self"]) is not None and _is_within(rec, a["self"], indices):
        _put(rec, a["self"], indices, nodes, new)
    else:
        nodes[_indexed(rec, a["self"], indices)] = new
    return Value.of(nodes, kind)


@rule("gather")
def _gather(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Gather along an axis; an index that depends on the state is compared with every position."""
    dim, kind, program = rec.inner_axis(a["self"], a["dim"], _PICKS), kind_of(result.dtype), rec.program
    source, index = rec.nodes(a["self"]), rec.nodes(a["index"], "i64")
    if any(source.shape[i] != index.shape[i] for i in range(source.ndim) if i != dim):
        raise Untraceable("gathers from a part of a tensor")
    nodes = np.empty(index.shape, dtype=np.int64)
    for position in np.ndindex(*index.shape):
        picked, *options = source[(*position[:dim], slice(None), *position[dim + 1 :])].tolist()
        rec.within(int(index[position]), 0, len(options) + 1)
        for i, option in enumerate(options, 1):
            chosen = program.add("eq", "b", int(index[position]), program.const(i, "i64"))
            picked = program.add("select", kind, chosen, option, picked)
        nodes[position] = picked
    return Value.of(nodes, kind)


@rule("index_fill")
def _index_fill(rec: Values, a: Arguments, result: Tensor) -> Result:
    dim, kind = rec.inner_axis(a["self"], a["dim"], _PICKS), kind_of(result.dtype)
    nodes = rec.nodes(a["self"], kind).copy()
    nodes[(slice(None),) * dim + (_constant_index(rec, a["index"]),)] = rec.nodes(a["value"], kind)
    return Value.of(nodes, kind)


@rule("scatter")
def _scatter(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Scatter along an axis; an index that depends on the state is compared with every position."""
    dim, kind, p = rec.inner_axis(a["self"], a["dim"], _PICKS), kind_of(result.dtype), rec.program
    nodes, index = rec.nodes(a["self"], kind).copy(), rec.nodes(a["index"], "i64")
    if a.get("reduce") is not None or any(nodes.shape[i] != index.shape[i] for i in range(nodes.ndim) if i != dim):
        raise Untraceable("scatters to a part of a tensor")
    new = rec.nodes(a["value"] if "value" in a else a["src"], kind)
    new = np.broadcast_to(new, index.shape) if new.ndim == 0 else new
    for position in np.ndindex(*index.shape):
        for i in range(nodes.shape[dim]):
            there = (*position[:dim], i, *position[dim + 1 :])
            chosen = p.add("eq", "b", int(index[position]), p.const(i, "i64"))
            nodes[there] = p.add("select", kind, chosen, int(new[position]), int(nodes[there]))
    return Value.of(nodes, kind)
