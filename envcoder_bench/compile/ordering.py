"""Rules for operators that sort the numbers of one environment."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from envcoder_bench.compile.program import Program, Untraceable, Value, kind_of
from envcoder_bench.compile.rules import Arguments, Result, rule
from envcoder_bench.compile.values import Values

Row = list[int]
MAX_SORTED = 32  # numbers; the number of comparisons grows with its square
_JOINS = "puts the environments of the group in order"


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
            for own, of in ((values, kind), (places, "i64")):
                x, y = own[i], own[i + 1]
                own[i], own[i + 1] = p.add("select", of, swap, y, x), p.add("select", of, swap, x, y)
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
    """Return the lower of the middle numbers; the first NaN if there is one."""
    values, places = _sorted(p, kind, row, False)
    own = [values[(len(row) - 1) // 2], places[(len(row) - 1) // 2]]
    for i in range(len(row) - 1, -1, -1):
        is_nan = p.add("ne", "b", row[i], row[i])
        own = [p.add("select", kind, is_nan, row[i], own[0]), p.add("select", "i64", is_nan, p.const(i, "i64"), own[1])]
    return [own[0]], [own[1]]


def _pair(rec: Values, a: Arguments, result: Any, change: Callable[[Program, str, Row], tuple[Row, Row]]) -> Result:
    """Return the values and positions that ``change`` computes from each row along ``dim``."""
    x: Tensor = a["self"]
    kind = rec.value(x).kind
    dim = rec.inner_axis(x, -1 if a.get("dim") is None else a["dim"], _JOINS)
    moved = np.moveaxis(rec.nodes(x), dim, -1)
    rows = [change(rec.program, kind, row) for row in moved.reshape(-1, moved.shape[-1]).tolist()]
    own = []
    for i, made in enumerate(result):
        nodes = np.array([row[i] for row in rows], dtype=np.int64).reshape(*moved.shape[:-1], -1)
        own.append(Value.of(np.moveaxis(nodes, -1, dim).reshape(rec.shape(made)), kind_of(made.dtype)))
    return own


@rule("sort")
def _sort(rec: Values, a: Arguments, result: Any) -> Result:
    return _pair(rec, a, result, lambda p, kind, row: _sorted(p, kind, row, a["descending"]))


@rule("topk")
def _topk(rec: Values, a: Arguments, result: Any) -> Result:
    def change(p: Program, kind: str, row: Row) -> tuple[Row, Row]:
        values, places = _sorted(p, kind, row, a["largest"])
        return values[: a["k"]], places[: a["k"]]

    return _pair(rec, a, result, change)


@rule("kthvalue")
def _kthvalue(rec: Values, a: Arguments, result: Any) -> Result:
    def change(p: Program, kind: str, row: Row) -> tuple[Row, Row]:
        values, places = _sorted(p, kind, row, False)
        return values[a["k"] - 1 : a["k"]], places[a["k"] - 1 : a["k"]]

    return _pair(rec, a, result, change)


@rule("median")
def _median_of(rec: Values, a: Arguments, result: Any) -> Result:
    if isinstance(result, Tensor):
        raise Untraceable(_JOINS)
    return _pair(rec, a, result, _median)


@rule("cummax")
def _cummax(rec: Values, a: Arguments, result: Any) -> Result:
    return _pair(rec, a, result, lambda p, kind, row: _running(p, kind, row, "ge"))


@rule("cummin")
def _cummin(rec: Values, a: Arguments, result: Any) -> Result:
    return _pair(rec, a, result, lambda p, kind, row: _running(p, kind, row, "le"))
