"""Rules for less common elementwise functions: inverse hyperbolic functions, functions of signs, membership."""

import math
from typing import Any

from torch import Tensor

from envcoder_bench.compile.pointwise import INF, Arguments, define
from envcoder_bench.compile.program import FLOATS, Program, Untraceable, kind_of
from envcoder_bench.compile.rules import Result, rule
from envcoder_bench.compile.values import Values, result_kind


def _select(p: Program, k: str, condition: int, yes: int, no: int) -> int:
    return p.add("select", k, condition, yes, no)


def _compare(p: Program, op: str, k: str, x: int, number: float) -> int:
    return p.add(op, "b", x, p.const(number, k))


def _scaled(p: Program, k: str, x: int, factor: float) -> int:
    return p.add("mul", k, x, p.const(factor, k))


def _log1p(p: Program, k: str, x: int) -> int:
    """Compute log(1 + x) to full precision (Kahan); for float32, computing in double precision suffices."""
    if k != "f64":
        return p.add("log1p", k, x)
    total = p.add("add", k, p.const(1, k), x)
    above = p.add("sub", k, total, p.const(1, k))
    small = p.add("div", k, p.add("mul", k, p.add("log", k, total), x), above)
    known = _select(p, k, p.add("eq", "b", total, x), p.add("log", k, total), small)
    return _select(p, k, _compare(p, "eq", k, above, 0), x, known)


def _expm1(p: Program, k: str, x: int) -> int:
    """Compute exp(x) - 1 to full precision (Kahan)."""
    if k != "f64":
        return p.add("expm1", k, x)
    power = p.add("exp", k, x)
    above = p.add("sub", k, power, p.const(1, k))
    small = p.add("div", k, p.add("mul", k, above, x), p.add("log", k, power))
    known = _select(p, k, p.add("eq", "b", power, above), power, small)
    known = _select(p, k, _compare(p, "eq", k, above, -1), above, known)
    return _select(p, k, _compare(p, "eq", k, power, 1), x, known)


def _is_negative(p: Program, k: str, x: int) -> int:
    """Return whether the sign bit is set, also for -0.0, whose inverse is minus infinity."""
    below = _compare(p, "lt", k, x, 0)
    if k not in FLOATS:
        return below
    zero = p.add("and", "b", _compare(p, "eq", k, x, 0), _compare(p, "lt", k, p.add("div", k, p.const(1, k), x), 0))
    return p.add("or", "b", below, zero)


def _copysign(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
    size = p.add("abs", k, x)
    return _select(p, k, _is_negative(p, k, y), p.add("neg", k, size), size)


def _known_wins(op: str) -> Any:
    """Return the larger or smaller of two numbers, ignoring NaN."""

    def make(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
        best = _select(p, k, p.add("ne", "b", y, y), x, p.add(op, k, x, y))
        return _select(p, k, p.add("ne", "b", x, x), y, best)

    return make


def _xlogy(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
    product = p.add("mul", k, x, p.add("log", k, y))
    known = p.add("and", "b", _compare(p, "eq", k, x, 0), p.add("eq", "b", y, y))
    return _select(p, k, known, p.const(0, k), product)


def _asinh(p: Program, k: str, a: Arguments, x: int) -> int:
    size = p.cast(p.add("abs", k, x), "f64")
    one, square = p.const(1, "f64"), p.add("mul", "f64", size, size)
    root = p.add("add", "f64", one, p.add("sqrt", "f64", p.add("add", "f64", one, square)))
    curve = p.cast(_log1p(p, "f64", p.add("add", "f64", size, p.add("div", "f64", square, root))), k)
    curve = _select(p, k, p.add("eq", "b", curve, curve), curve, p.add("abs", k, x))  # infinity / infinity
    return _copysign(p, k, a, curve, x)


def _acosh(p: Program, k: str, a: Arguments, x: int) -> int:
    wide, one = p.cast(x, "f64"), p.const(1, "f64")
    root = p.add("sqrt", "f64", p.add("sub", "f64", p.add("mul", "f64", wide, wide), one))
    return p.cast(p.add("log", "f64", p.add("add", "f64", wide, root)), k)


def _atanh(p: Program, k: str, a: Arguments, x: int) -> int:
    wide, one = p.cast(x, "f64"), p.const(1, "f64")
    ratio = p.add("div", "f64", p.add("add", "f64", wide, wide), p.add("sub", "f64", one, wide))
    return p.cast(_scaled(p, "f64", _log1p(p, "f64", ratio), 0.5), k)


def _infinite(sign: float) -> Any:
    def make(p: Program, k: str, a: Arguments, x: int) -> int:
        return _compare(p, "eq", k, x, sign * INF) if k in FLOATS else p.const(False, "b")

    return make


def _huber(p: Program, k: str, a: Arguments, apart: int) -> int:
    delta, size = a.get("delta", 1.0), p.add("abs", k, apart)
    far = _scaled(p, k, p.add("sub", k, size, p.const(0.5 * delta, k)), delta)
    return _select(p, k, _compare(p, "le", k, size, delta), _scaled(p, k, p.add("mul", k, size, size), 0.5), far)


define(["log1p"], ["self"], lambda p, k, a, x: _log1p(p, k, x))
define(["expm1"], ["self"], lambda p, k, a, x: _expm1(p, k, x))
define(["copysign"], ["self", "other"], _copysign)
define(["signbit"], ["self"], lambda p, k, a, x: _is_negative(p, k, x), "operands")
define(["fmax"], ["self", "other"], _known_wins("maximum"))
define(["fmin"], ["self", "other"], _known_wins("minimum"))
define(["xlogy"], ["self", "other"], _xlogy)
define(["deg2rad"], ["self"], lambda p, k, a, x: _scaled(p, k, x, math.pi / 180))
define(["rad2deg"], ["self"], lambda p, k, a, x: _scaled(p, k, x, 180 / math.pi))
define(["asinh"], ["self"], _asinh)
define(["acosh"], ["self"], _acosh)
define(["atanh"], ["self"], _atanh)
define(["isposinf"], ["self"], _infinite(1), "operands")
define(["isneginf"], ["self"], _infinite(-1), "operands")


@rule("huber_loss")
def _huber_loss(rec: Values, a: Arguments, result: Tensor) -> Result:
    if a.get("reduction", 1) != 0:
        raise Untraceable("joins the environments of the group (give the loss reduction='none')")
    kind, p = kind_of(result.dtype), rec.program
    pair = [rec.nodes(a[side], kind) for side in ("self", "target")]
    return rec.elementwise(pair, kind, lambda x, y: _huber(p, kind, a, p.add("sub", kind, x, y)), result)


@rule("isin")
def _isin(rec: Values, a: Arguments, result: Tensor) -> Result:
    if rec.axis(a["test_elements"]) is not None:
        raise Untraceable("looks for numbers among those of all environments")
    kind, p = result_kind(a["elements"], a["test_elements"]), rec.program
    options: list[int] = rec.nodes(a["test_elements"], kind).reshape(-1).tolist()

    def make(x: int) -> int:
        found = p.const(False, "b")
        for option in options:
            found = p.add("or", "b", found, p.add("eq", "b", x, option))
        return p.add("not", "b", found) if a.get("invert") else found

    return rec.elementwise([rec.nodes(a["elements"], kind)], "b", make, result)


@rule("bucketize")
def _bucketize(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Count the boundaries below (or, with ``right``, not above) each number."""
    kind, p, own = kind_of(a["self"].dtype), rec.program, kind_of(result.dtype)
    edges: list[int] = rec.nodes(a["boundaries"], kind).tolist()

    def make(x: int) -> int:
        count = p.const(0, own)
        for edge in edges:
            passed = p.add("not", "b", p.add("gt" if a["right"] else "ge", "b", edge, x))  # NaN passes all
            count = p.add("add", own, count, p.cast(passed, own))
        return count

    return rec.elementwise([rec.nodes(a["self"], kind)], own, make, result)
