"""Rules for elementwise operators, special functions among them."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from envcoder_bench.compile.program import COMPARISONS, FLOATS, Program, Untraceable, kind_of
from envcoder_bench.compile.values import Arguments, Result, Values, result_kind, rule

Make = Callable[..., int]  # a function (program, kind to compute in, arguments by name, nodes...) -> node
INF = float("inf")

# operators that have the same operation in c_code.py, by the number of operands
_UNARY = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "exp2", "log", "log2", "log10", "sqrt",
    "erf", "erfc", "floor", "ceil", "trunc", "neg", "abs",
)  # fmt: skip
_BINARY = ("mul", "maximum", "minimum", "atan2", "fmod")
_BITWISE = {
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "bitwise_left_shift": "shl", "__lshift__": "shl", "bitwise_right_shift": "shr", "__rshift__": "shr",
    "bitwise_not": "not",
}  # fmt: skip
_LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}


def define(names: Sequence[str], operands: Sequence[str], make: Make, kind: str | None = None) -> None:
    """Make the rule of elementwise operators.

    Args:
        operands: names of the arguments that are broadcast; arguments that are None are left out.
        kind: the kind in which ``make`` computes; "operands" for the kind that torch promotes the operands to, None for
            the result's kind.
    """

    @rule(*names)
    def _(rec: Values, a: Arguments, result: Tensor) -> Result:
        tensors = [a[name] for name in operands if a.get(name) is not None]
        result_dtype = kind_of(result.dtype)
        inner = result_kind(*tensors) if kind == "operands" else kind or result_dtype
        arrays = [rec.nodes(x, inner) for x in tensors]
        return rec.elementwise(arrays, result_dtype, lambda *nodes: make(rec.program, inner, a, *nodes), result)


def direct(op: str, result: str | None = None) -> Make:
    """Return the operation ``op``; ``result`` is the kind of its result, if it differs from the operands'."""
    return lambda p, k, a, *nodes: p.add(op, result or k, *nodes)


def limited(p: Program, k: str, x: int, low: float | None = None, high: float | None = None) -> int:
    """Clamp ``x``; NaN stays NaN."""
    x = x if low is None else p.add("maximum", k, x, p.const(low, k))
    return x if high is None else p.add("minimum", k, x, p.const(high, k))


def _sum(op: str, swap: bool = False) -> Make:
    def make(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
        if a.get("alpha", 1) != 1:
            if swap:
                x = p.add("mul", k, x, p.const(a["alpha"], k))
            else:
                y = p.add("mul", k, y, p.const(a["alpha"], k))
        return p.add(op, k, y, x) if swap else p.add(op, k, x, y)

    return make


def floor_quotient(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
    """Compute ``x // y`` as torch and Python do, from the exact remainder: 1.0 // 0.1 is 9."""
    if k not in FLOATS:
        return p.add("floordiv", k, x, y)
    zero, one, rest = p.const(0, k), p.const(1, k), p.add("fmod", k, x, y)
    quotient = p.add("div", k, p.add("sub", k, x, rest), y)
    opposite = p.add("ne", "b", p.add("lt", "b", y, zero), p.add("lt", "b", rest, zero))
    lower = p.add("and", "b", p.add("ne", "b", rest, zero), opposite)
    quotient = p.add("select", k, lower, p.add("sub", k, quotient, one), quotient)
    whole = p.add("floor", k, quotient)
    far = p.add("gt", "b", p.add("sub", k, quotient, whole), p.const(0.5, k))
    whole = p.add("select", k, far, p.add("add", k, whole, one), whole)
    return p.add("select", k, p.add("eq", "b", y, zero), p.add("div", k, x, y), whole)


def _div(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
    mode = a.get("rounding_mode")
    if mode == "floor":
        return floor_quotient(p, k, a, x, y)
    if mode == "trunc":
        return p.add("trunc", k, p.add("div", k, x, y)) if k in FLOATS else p.add("div", k, x, y)
    return p.add("div", k, x, y)


def power(p: Program, k: str, x: int, exponent: float) -> int:
    """Compute ``x ** exponent`` for a known exponent, as torch does."""
    # torch multiplies, takes a root or divides for these exponents
    if exponent in (2, 3):
        square = p.add("mul", k, x, x)
        return square if exponent == 2 else p.add("mul", k, square, x)
    if exponent == 0.5:
        return p.add("sqrt", k, x)
    if exponent == 1:
        return x
    if exponent in (-1, -2, -0.5):
        return p.add("div", k, p.const(1, k), power(p, k, x, -exponent))
    if k not in FLOATS:
        if exponent > 64:
            raise Untraceable(f"raises integers to the power {exponent}")
        return functools.reduce(lambda y, _: p.add("mul", k, y, x), range(int(exponent)), p.const(1, k))
    return p.add("pow", k, x, p.const(exponent, k))


def _pow(p: Program, k: str, a: Arguments, *nodes: int) -> int:
    if not isinstance(a["exponent"], Tensor):
        return power(p, k, nodes[0], a["exponent"])
    exponent = p.nodes[nodes[-1]]
    if exponent.op == "const":
        return power(p, k, nodes[0], exponent.value)
    if k not in FLOATS:
        raise Untraceable("raises integers to a power that depends on the state")
    return p.add("pow", k, *nodes)


def _sigmoid(p: Program, k: str, a: Arguments, x: int) -> int:
    one = p.const(1, k)
    return p.add("div", k, one, p.add("add", k, one, p.add("exp", k, p.add("neg", k, x))))


def _sign(p: Program, k: str, a: Arguments, x: int) -> int:
    zero = p.const(0, k)
    above, below = (p.cast(p.add(op, "b", x, zero), k) for op in ("gt", "lt"))
    return p.add("sub", k, above, below)


def _select(p: Program, k: str, condition: int, yes: int, no: int) -> int:
    return p.add("select", k, condition, yes, no)


def _elu(p: Program, k: str, a: Arguments, x: int) -> int:
    alpha, scale, input_scale = (a.get(name, 1.0) for name in ("alpha", "scale", "input_scale"))
    curve = p.add("expm1", k, p.add("mul", k, x, p.const(input_scale, k)))
    low = p.add("mul", k, curve, p.const(alpha * scale, k))
    return _select(p, k, p.add("gt", "b", x, p.const(0, k)), p.add("mul", k, x, p.const(scale, k)), low)


def _shrink(p: Program, k: str, a: Arguments, x: int) -> int:
    return p.add("sub", k, x, limited(p, k, x, -a["lambd"], a["lambd"]))


def _clamp(p: Program, k: str, a: Arguments, x: int, *limits: int) -> int:
    bounds = [name for name in ("min", "max") if a.get(name) is not None]
    for name, limit in zip(bounds, limits):
        x = p.add("maximum" if name == "min" else "minimum", k, x, limit)
    return x


def _scaled_sum(op: str) -> Make:
    def make(p: Program, k: str, a: Arguments, x: int, y: int, z: int) -> int:
        product = p.add(op, k, p.add("mul", k, y, p.const(a.get("value", 1), k)), z)
        return p.add("add", k, x, product)

    return make


def _lerp(p: Program, k: str, a: Arguments, x: int, end: int, weight: int) -> int:
    way = p.add("sub", k, end, x)
    early = p.add("add", k, x, p.add("mul", k, weight, way))
    late = p.add("sub", k, end, p.add("mul", k, way, p.add("sub", k, p.const(1, k), weight)))
    return _select(p, k, p.add("lt", "b", p.add("abs", k, weight), p.const(0.5, k)), early, late)


def _remainder(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
    if k not in FLOATS:
        return p.add("remainder", k, x, y)
    zero, rest = p.const(0, k), p.add("fmod", k, x, y)
    opposite = p.add("ne", "b", p.add("lt", "b", rest, zero), p.add("lt", "b", y, zero))
    moved = p.add("and", "b", p.add("ne", "b", rest, zero), opposite)
    return _select(p, k, moved, p.add("add", k, rest, y), rest)


def _hypot(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
    squares = [p.add("mul", "f64", wide, wide) for wide in (p.cast(x, "f64"), p.cast(y, "f64"))]
    return p.cast(p.add("sqrt", "f64", p.add("add", "f64", *squares)), k)


for _name in _UNARY:
    define([_name], ["self"], direct(_name))
for _name in _BINARY:
    define([_name], ["self", "other"], direct(_name))
for _name, _op in _BITWISE.items():
    define([_name], ["self", "other"], direct(_op))
for _name, _op in _LOGICAL.items():
    define([_name], ["self", "other"], direct(_op), "b")
for _name in COMPARISONS:
    define([_name], ["self", "other"], direct(_name, "b"), "operands")
define(["add"], ["self", "other"], _sum("add"))
define(["sub"], ["self", "other"], _sum("sub"))
define(["rsub"], ["self", "other"], _sum("sub", swap=True))
define(["div"], ["self", "other"], _div)
define(["floor_divide"], ["self", "other"], floor_quotient)
define(["remainder"], ["self", "other"], _remainder)
define(["reciprocal"], ["self"], lambda p, k, a, x: p.add("div", k, p.const(1, k), x))
define(["rsqrt"], ["self"], lambda p, k, a, x: power(p, k, x, -0.5))
define(["pow"], ["self", "exponent"], _pow)
define(["sigmoid"], ["self"], _sigmoid)
define(["relu"], ["self"], lambda p, k, a, x: limited(p, k, x, low=0))
define(["elu"], ["self"], _elu)
define(["softshrink"], ["self"], _shrink)
define(["sign", "sgn"], ["self"], _sign)
define(["clamp"], ["self", "min", "max"], _clamp)
define(["clamp_min"], ["self", "min"], direct("maximum"))
define(["clamp_max"], ["self", "max"], direct("minimum"))
define(["addcmul"], ["self", "tensor1", "tensor2"], _scaled_sum("mul"))
define(["addcdiv"], ["self", "tensor1", "tensor2"], _scaled_sum("div"))
define(["lerp"], ["self", "end", "weight"], _lerp)
define(["hypot"], ["self", "other"], _hypot)
define(["isnan"], ["self"], lambda p, k, a, x: p.add("ne", "b", x, x), "operands")


@rule("round")
def _round(rec: Values, a: Arguments, result: Tensor) -> Result:
    kind, p = kind_of(result.dtype), rec.program
    factor = p.const(10.0 ** abs(a.get("decimals") or 0), kind)
    scale, unscale = ("mul", "div") if (a.get("decimals") or 0) >= 0 else ("div", "mul")

    def make(x: int) -> int:
        if not a.get("decimals"):
            return p.add("round", kind, x)
        return p.add(unscale, kind, p.add("round", kind, p.add(scale, kind, x, factor)), factor)

    return rec.elementwise([rec.nodes(a["self"], kind)], kind, make, result)


def _define_choice(name: str, *operands: str) -> None:
    """Make the rule of an operator that chooses; ``operands`` are the condition and the two values."""

    @rule(name)
    def _(rec: Values, a: Arguments, result: Tensor) -> Result:
        kind = kind_of(result.dtype)
        arrays = [rec.nodes(a[operand], "b" if operand == operands[0] else kind) for operand in operands]
        return rec.elementwise(arrays, kind, lambda *nodes: rec.program.add("select", kind, *nodes), result)


_define_choice("where", "condition", "self", "other")
_define_choice("masked_fill", "mask", "value", "self")


# less common functions: inverse hyperbolic functions, functions of signs, membership


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
    exact = _select(p, k, p.add("eq", "b", total, x), p.add("log", k, total), small)
    return _select(p, k, _compare(p, "eq", k, above, 0), x, exact)


def _expm1(p: Program, k: str, x: int) -> int:
    """Compute exp(x) - 1 to full precision (Kahan)."""
    if k != "f64":
        return p.add("expm1", k, x)
    power = p.add("exp", k, x)
    above = p.add("sub", k, power, p.const(1, k))
    small = p.add("div", k, p.add("mul", k, above, x), p.add("log", k, power))
    exact = _select(p, k, p.add("eq", "b", power, above), power, small)
    exact = _select(p, k, _compare(p, "eq", k, above, -1), above, exact)
    return _select(p, k, _compare(p, "eq", k, power, 1), x, exact)


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


def _extreme_without_nan(op: str) -> Any:
    """Return a function for the larger or smaller of two numbers, which ignores NaN."""

    def make(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
        best = _select(p, k, p.add("ne", "b", y, y), x, p.add(op, k, x, y))
        return _select(p, k, p.add("ne", "b", x, x), y, best)

    return make


def _xlogy(p: Program, k: str, a: Arguments, x: int, y: int) -> int:
    product = p.add("mul", k, x, p.add("log", k, y))
    is_zero = p.add("and", "b", _compare(p, "eq", k, x, 0), p.add("eq", "b", y, y))
    return _select(p, k, is_zero, p.const(0, k), product)


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
define(["fmax"], ["self", "other"], _extreme_without_nan("maximum"))
define(["fmin"], ["self", "other"], _extreme_without_nan("minimum"))
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
        is_member = p.const(False, "b")
        for option in options:
            is_member = p.add("or", "b", is_member, p.add("eq", "b", x, option))
        return p.add("not", "b", is_member) if a.get("invert") else is_member

    return rec.elementwise([rec.nodes(a["elements"], kind)], "b", make, result)


@rule("bucketize")
def _bucketize(rec: Values, a: Arguments, result: Tensor) -> Result:
    """Count the boundaries below (or, with ``right``, not above) each number."""
    kind, p, index_kind = kind_of(a["self"].dtype), rec.program, kind_of(result.dtype)
    edges: list[int] = rec.nodes(a["boundaries"], kind).tolist()

    def make(x: int) -> int:
        count = p.const(0, index_kind)
        for edge in edges:
            passed = p.add("not", "b", p.add("gt" if a["right"] else "ge", "b", edge, x))  # NaN passes all
            count = p.add("add", index_kind, count, p.cast(passed, index_kind))
        return count

    return rec.elementwise([rec.nodes(a["self"], kind)], index_kind, make, result)
