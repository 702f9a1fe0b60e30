"""Rules for operators that combine or sort the numbers of one environment: sums, norms, extremes, matrix products."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from envcoder_bench.compile.pointwise import power
from envcoder_bench.compile.program import Program, Untraceable, Value, kind_of
from envcoder_bench.compile.values import Arguments, Result, Values, rule

Fold = Callable[[list[int]], int]
_JOINS = "joins the environments of the group (a sum or mean over all of them, say)"

Row = list[int]
MAX_SORTED = 32  # most numbers that are sorted; the number of comparisons grows with its square
_ORDERS = "puts the environments of the group in order"


def _reduced(rec: Values, x: Tensor, dims: Any, kind: str, fold: Fold, result: Tensor) -> Value:
    """Reduce the numbers along ``dims`` (None: all) to a single number, in their order."""
    nodes = rec.nodes(x, kind)
    chosen = list(range(x.dim())) if dims is None or dims == [] else [dims] if isinstance(dims, int) else list(dims)
    chosen = [rec.inner_axis(x, dim, _JOINS) for dim in chosen] if x.dim() else []
    kept = [dim for dim in range(x.dim()) if dim not in chosen]
    rows = np.transpose(nodes, kept + chosen).reshape(int(np.prod([nodes.shape[dim] for dim in kept])), -1)
    folded = np.array([fold(row) for row in rows.tolist()], dtype=np.int64)
    return Value.of(folded.reshape(rec.shape(result)), kind_of(result.dtype))


def _folded(p: Program, op: str, kind: str, nodes: Sequence[int]) -> int:
    return functools.reduce(lambda x, y: p.add(op, kind, x, y), nodes)


def _total(p: Program, kind: str, nodes: Sequence[int]) -> int:
    return _folded(p, "add", kind, nodes) if nodes else p.const(0, kind)


def _define(name: str, fold: Callable[[Program, str, Arguments, list[int]], int], kind: str | None = None) -> None:
    """Define a reduction over ``dim``, computed in ``kind`` (None: the result's; "own": the operand's)."""

    @rule(name)
    def _(rec: Values, a: Arguments, result: Tensor) -> Result:
        inner = rec.value(a["self"]).kind if kind == "own" else kind or kind_of(result.dtype)
        return _reduced(rec, a["self"], a.get("dim"), inner, lambda row: fold(rec.program, inner, a, row), result)


def _mean(p: Program, k: str, a: Arguments, row: list[int]) -> int:
    return p.add("div", k, _total(p, k, row), p.const(len(row), k))


def _norm_of(p: Program, k: str, order: float, row: list[int]) -> int:
    if order == 2:
        return p.add("sqrt", k, _total(p, k, [p.add("mul", k, x, x) for x in row]))
    sizes = [p.add("abs", k, x) for x in row]
    if order in (float("inf"), -float("inf")):
        return _folded(p, "maximum" if order > 0 else "minimum", k, sizes)
    if order == 1:
        return _total(p, k, sizes)
    if order == 0:
        return _total(p, k, [p.cast(p.add("ne", "b", x, p.const(0, k)), k) for x in row])
    return power(p, k, _total(p, k, [power(p, k, x, order) for x in sizes]), 1 / order)


def _variance(p: Program, k: str, a: Arguments, row: list[int]) -> int:
    correction = a.get("correction", a.get("unbiased", True))
    mean = _mean(p, k, a, row)
    squares = [power(p, k, p.add("sub", k, x, mean), 2) for x in row]
    left = max(0.0, len(row) - (1.0 if correction is None else float(correction)))
    return p.add("div", k, _total(p, k, squares), p.const(left, k))


_define("sum", lambda p, k, a, row: _total(p, k, row))
_define("prod", lambda p, k, a, row: _folded(p, "mul", k, row))
_define("mean", _mean)
_define("amax", lambda p, k, a, row: _folded(p, "maximum", k, row))
_define("amin", lambda p, k, a, row: _folded(p, "minimum", k, row))
_define("any", lambda p, k, a, row: _folded(p, "or", k, row), "b")
_define("all", lambda p, k, a, row: _folded(p, "and", k, row), "b")
_define("linalg_vector_norm", lambda p, k, a, row: _norm_of(p, k, a["ord"], row))
_define("var", _variance)


@rule("var_mean")
def _variance_and_mean(rec: Values, a: Arguments, result: Any) -> Result:
    p, kind, dim = rec.program, rec.value(a["self"]).kind, a.get("dim")
    return [
        _reduced(rec, a["self"], dim, kind, lambda row, f=fold: f(p, kind, a, row), tensor)
        for fold, tensor in zip((_variance, _mean), result)
    ]


def _extreme(p: Program, kind: str, op: str, row: Sequence[int]) -> list[int]:
    """Return the extreme of a row and its first position (NaN counts as the extreme, as in torch)."""
    best, position = row[0], p.const(0, "i64")
    for i, x in enumerate(row[1:], start=1):
        is_nan, was_nan = p.add("ne", "b", x, x), p.add("ne", "b", best, best)
        better = p.add("and", "b", p.add("or", "b", p.add(op, "b", x, best), is_nan), p.add("not", "b", was_nan))
        best, position = (
            p.add("select", kind, better, x, best),
            p.add("select", "i64", better, p.const(i, "i64"), position),
        )
    return [best, position]


def _define_extreme(name: str, op: str, arg: bool) -> None:
    @rule(name)
    def _(rec: Values, a: Arguments, result: Any) -> Result:
        p, kind, fold = rec.program, rec.value(a["self"]).kind, "maximum" if op == "gt" else "minimum"
        if isinstance(result, Tensor) and not arg:  # over all numbers
            return _reduced(rec, a["self"], None, kind, lambda row: _folded(p, fold, kind, row), result)
        values, places = (None, result) if arg else result
        reduced = [
            _reduced(rec, a["self"], a.get("dim"), kind, lambda row, i=i: _extreme(p, kind, op, row)[i], tensor)
            for i, tensor in ((0, values), (1, places))
            if tensor is not None
        ]
        return reduced[0] if arg else reduced


for _name, _op in (("max", "gt"), ("min", "lt")):
    _define_extreme(_name, _op, arg=False)
    _define_extreme(f"arg{_name}", _op, arg=True)


def _cumulated(p: Program, op: str, kind: str, row: list[int]) -> list[int]:
    return list(itertools.accumulate(row, lambda x, y: p.add(op, kind, x, y)))


def _softmax(p: Program, kind: str, row: list[int]) -> list[int]:
    top = _folded(p, "maximum", kind, row)
    exponentials = [p.add("exp", kind, p.add("sub", kind, x, top)) for x in row]
    total = _total(p, kind, exponentials)
    return [p.add("div", kind, x, total) for x in exponentials]


def _log_softmax(p: Program, kind: str, row: list[int]) -> list[int]:
    top = _folded(p, "maximum", kind, row)
    total = p.add("log", kind, _total(p, kind, [p.add("exp", kind, p.add("sub", kind, x, top)) for x in row]))
    return [p.add("sub", kind, p.add("sub", kind, x, top), total) for x in row]


# functions that replace the numbers along ``dim`` by as many others
_ALONG: dict[str, Callable[[Program, str, list[int]], list[int]]] = {
    "cumsum": lambda p, kind, row: _cumulated(p, "add", kind, row),
    "cumprod": lambda p, kind, row: _cumulated(p, "mul", kind, row),
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
}


def _define_along(name: str) -> None:
    @rule(name)
    def _(rec: Values, a: Arguments, result: Tensor) -> Result:
        kind = kind_of(result.dtype)
        moved = np.moveaxis(rec.nodes(a["self"], kind), rec.inner_axis(a["self"], a["dim"], _JOINS), -1)
        rows = [_ALONG[name](rec.program, kind, row) for row in moved.reshape(-1, moved.shape[-1]).tolist()]
        nodes = np.array(rows, dtype=np.int64).reshape(moved.shape)
        return Value.of(np.moveaxis(nodes, -1, a["dim"]), kind)


for _name in _ALONG:
    _define_along(_name)


@rule("mm", "bmm", "mv")
def _matmul(rec: Values, a: Arguments, result: Tensor) -> Result:
    right = a["mat2"] if "mat2" in a else a["vec"]
    return _product(rec, a["self"], right, result, vector="vec" in a)


@rule("addmv")
def _addmv(rec: Values, a: Arguments, result: Tensor) -> Result:
    kind, p = kind_of(result.dtype), rec.program
    product = _product(rec, a["mat"], a["vec"], result, vector=True)

    def make(x: int, y: int) -> int:
        scaled = [p.add("mul", kind, node, p.const(a[name], kind)) for node, name in ((x, "beta"), (y, "alpha"))]
        return p.add("add", kind, *scaled)

    return rec.elementwise([rec.nodes(a["self"], kind), product.nodes], kind, make, result)


def _product(rec: Values, left: Tensor, right: Tensor, result: Tensor, vector: bool = False) -> Value:
    """Multiply (batches of) matrices, number by number."""
    kind, p = kind_of(result.dtype), rec.program
    if rec.axis(left) == left.dim() - 1:  # then it is the axis of the right side's rows, too
        raise Untraceable(_JOINS)
    x, y = rec.nodes(left, kind), rec.nodes(right, kind)
    y = y[:, None] if vector else y
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = np.broadcast_to(x, batch + x.shape[-2:]), np.broadcast_to(y, batch + y.shape[-2:])
    nodes = np.empty((*batch, x.shape[-2], y.shape[-1]), dtype=np.int64)
    for position in np.ndindex(*nodes.shape):
        row, column = x[position[:-1]].tolist(), y[(*position[:-2], slice(None), position[-1])].tolist()
        nodes[position] = _total(p, kind, [p.add("mul", kind, u, v) for u, v in zip(row, column)])
    return Value.of(nodes.reshape(rec.shape(result)), kind)


@rule("linalg_cross")
def _cross(rec: Values, a: Arguments, result: Tensor) -> Result:
    dim, kind, p = a.get("dim"), kind_of(result.dtype), rec.program
    # the length of the axis is 3, so that it is not the axis of environments
    dim = (result.shape.index(3) if dim is None else dim) % result.dim()
    x, y = (np.moveaxis(np.broadcast_to(rec.nodes(a[n], kind), rec.shape(result)), dim, 0) for n in ("self", "other"))
    nodes = np.empty(x.shape, dtype=np.int64)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        for position in np.ndindex(*x.shape[1:]):
            left = p.add("mul", kind, int(x[(j, *position)]), int(y[(k, *position)]))
            right = p.add("mul", kind, int(x[(k, *position)]), int(y[(j, *position)]))
            nodes[(i, *position)] = p.add("sub", kind, left, right)
    return Value.of(np.moveaxis(nodes, 0, dim), kind)


@rule("_cdist_forward")
def _distances(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Compute the distances between all pairs of points, ``(..., P, M)`` and ``(..., R, M)``."""
    kind, p = kind_of(result.dtype), rec.program
    if {x.dim() - 2 for x in (a["x1"], a["x2"]) if rec.axis(x) == x.dim() - 2}:
        raise Untraceable(_JOINS)
    x, y = rec.nodes(a["x1"], kind)[..., :, None, :], rec.nodes(a["x2"], kind)[..., None, :, :]
    shape = np.broadcast_shapes(x.shape, y.shape)
    pairs = zip(np.broadcast_to(x, shape).reshape(-1, shape[-1]), np.broadcast_to(y, shape).reshape(-1, shape[-1]))
    norms = [_norm_of(p, kind, a["p"], [p.add("sub", kind, int(u), int(v)) for u, v in zip(*pair)]) for pair in pairs]
    return Value.of(np.array(norms, dtype=np.int64).reshape(rec.shape(result)), kind)


@rule("native_layer_norm")
def _layer_norm(rec: Values, a: Arguments, result: Any) -> Result:
    """Normalize over the last axes; return the result, the means and the inverse deviations."""
    kind, p, lead = kind_of(result[0].dtype), rec.program, a["input"].dim() - len(a["normalized_shape"])
    if rec.axis(a["input"]) is not None and rec.axis(a["input"]) >= lead:  # type: ignore[operator]
        raise Untraceable(_JOINS)
    # mean and inverse deviation of each row
    x = rec.nodes(a["input"], kind)
    rows = x.reshape(int(np.prod(x.shape[:lead])), -1).tolist()
    means = [_mean(p, kind, {}, row) for row in rows]
    spreads = [_variance(p, kind, {"correction": 0}, row) for row in rows]
    inverse = [power(p, kind, p.add("add", kind, spread, p.const(a["eps"], kind)), -0.5) for spread in spreads]
    normalized = [
        [p.add("mul", kind, p.add("sub", kind, node, mean), factor) for node in row]
        for row, mean, factor in zip(rows, means, inverse)
    ]
    # scale and shift
    normal = np.array(normalized, dtype=np.int64).reshape(x.shape)
    for name, op in (("weight", "mul"), ("bias", "add")):
        if a.get(name) is not None:
            pairs = [normal, rec.nodes(a[name], kind)]
            normal = rec.elementwise(pairs, kind, lambda u, v, op=op: p.add(op, kind, u, v), result[0]).nodes
    rest = [
        Value.of(np.array(row, dtype=np.int64).reshape(rec.shape(tensor)), kind)
        for row, tensor in zip((means, inverse), result[1:])
    ]
    return [Value.of(normal, kind), *rest]


# sorting


def _comes_before(p: Program, x: int, y: int, descending: bool) -> int:
    """Return whether ``y`` must be sorted before ``x``, which precedes it; NaN is larger than all numbers."""
    x, y = (y, x) if descending else (x, y)
    nan_x, known_y = p.add("ne", "b", x, x), p.add("eq", "b", y, y)
    return p.add("or", "b", p.add("gt", "b", x, y), p.add("and", "b", nan_x, known_y))


def _sorted(p: Program, kind: str, row: Row, descending: bool) -> tuple[Row, Row]:
    """Return a sorted row and the position of each number before; the sort is stable."""
    if len(row) > MAX_SORTED:
        raise Untraceable(f"sorts more than {MAX_SORTED} numbers")
    values, places = list(row), [p.const(i, "i64") for i in range(len(row))]
    for last in range(len(row) - 1, 0, -1):
        for i in range(last):
            swap = _comes_before(p, values[i], values[i + 1], descending)
            for nodes, of in ((values, kind), (places, "i64")):
                x, y = nodes[i], nodes[i + 1]
                nodes[i], nodes[i + 1] = p.add("select", of, swap, y, x), p.add("select", of, swap, x, y)
    return values, places


def _running(p: Program, kind: str, row: Row, op: str) -> tuple[Row, Row]:
    """Return the running extreme and the position of its last occurrence."""
    values, places = [row[0]], [p.const(0, "i64")]
    for i, x in enumerate(row[1:], start=1):
        best = values[-1]
        better = p.add("and", "b", p.add(op, "b", x, best), p.add("eq", "b", best, best))
        better = p.add("or", "b", better, p.add("ne", "b", x, x))
        values.append(p.add("select", kind, better, x, best))
        places.append(p.add("select", "i64", better, p.const(i, "i64"), places[-1]))
    return values, places


def _median(p: Program, kind: str, row: Row) -> tuple[Row, Row]:
    """Return the lower of the middle numbers, or the first NaN."""
    values, places = _sorted(p, kind, row, False)
    middle = [values[(len(row) - 1) // 2], places[(len(row) - 1) // 2]]
    for i in range(len(row) - 1, -1, -1):
        is_nan = p.add("ne", "b", row[i], row[i])
        middle = [
            p.add("select", kind, is_nan, row[i], middle[0]),
            p.add("select", "i64", is_nan, p.const(i, "i64"), middle[1]),
        ]
    return [middle[0]], [middle[1]]


# functions that compute values and positions from each row along ``dim``
_PAIRS: dict[str, Callable[[Program, str, Row, Arguments], tuple[Row, Row]]] = {
    "sort": lambda p, kind, row, a: _sorted(p, kind, row, a["descending"]),
    "topk": lambda p, kind, row, a: _cut(_sorted(p, kind, row, a["largest"]), 0, a["k"]),
    "kthvalue": lambda p, kind, row, a: _cut(_sorted(p, kind, row, False), a["k"] - 1, a["k"]),
    "median": lambda p, kind, row, a: _median(p, kind, row),
    "cummax": lambda p, kind, row, a: _running(p, kind, row, "ge"),
    "cummin": lambda p, kind, row, a: _running(p, kind, row, "le"),
}


def _cut(pair: tuple[Row, Row], first: int, end: int) -> tuple[Row, Row]:
    return pair[0][first:end], pair[1][first:end]


def _define_pair(name: str) -> None:
    @rule(name)
    def _(rec: Values, a: Arguments, result: Any) -> Result:
        if isinstance(result, Tensor):  # a result of all numbers, those of other environments included
            raise Untraceable(_ORDERS)
        x: Tensor = a["self"]
        kind = rec.value(x).kind
        dim = rec.inner_axis(x, -1 if a.get("dim") is None else a["dim"], _ORDERS)
        moved = np.moveaxis(rec.nodes(x), dim, -1)
        rows = [_PAIRS[name](rec.program, kind, row, a) for row in moved.reshape(-1, moved.shape[-1]).tolist()]
        pair = []
        for i, tensor in enumerate(result):
            nodes = np.array([row[i] for row in rows], dtype=np.int64).reshape(*moved.shape[:-1], -1)
            pair.append(Value.of(np.moveaxis(nodes, -1, dim).reshape(rec.shape(tensor)), kind_of(tensor.dtype)))
        return pair


for _name in _PAIRS:
    _define_pair(_name)
