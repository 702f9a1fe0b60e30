"""Programs that are valid for any number of environments, from recordings with several sample sizes.

A function may read ``n = x.shape[0]`` as a Python number, which a recording has for one sample size only. If
recordings with several sizes differ only in constants, formulas in the number of environments replace the constants.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from envcoder_bench.compile.program import FLOATS, Node, Number, Obstacle, Output, Program

MAX_SHARE = 12  # largest share in (k * n + offset) // share; the sample sizes have all remainders of such divisions
MAX_DIVISOR = 64  # largest divisor in n // divisor and n % divisor, if one of the sample sizes is a multiple of it

Formula = Callable[[Program, int], int]  # (program, node of the number of environments) to node
Count = Callable[[int], int]  # an integer as a function of the number of environments
_REASON = (
    "depends on how many environments there are (x.shape[0], len(x)) in a way that cannot be compiled: use that number"
    " for shapes, torch.arange(n), and sums, products and whole quotients of it, and do not branch on it"
)


def equal(first: Program, second: Program) -> bool:
    """Return whether two programs are bitwise equal."""
    both = [first, second]
    return first.outputs == second.outputs and _first_difference(both) is None and not _varying(both)


def for_any_size(programs: Sequence[Program], sizes: Sequence[int]) -> Program | Obstacle:
    """Return one program for recordings of a function with different numbers of environments, or an obstacle.

    Args:
        programs: the pruned recordings.
    """
    # operations and outputs must be the same for all sizes; only constants may differ
    first, position = programs[0], _first_difference(programs)
    if position is not None or any(program.outputs != first.outputs for program in programs):
        return _line(first, position or 0), _REASON
    # a formula in the number of environments for each constant that differs
    formulas: dict[int, Formula] = {}
    by_values: dict[tuple[object, ...], Formula | None] = {}
    for position in _varying(programs):
        kind, values = first.nodes[position].kind, tuple(program.nodes[position].value for program in programs)
        if (kind, values) not in by_values:
            by_values[kind, values] = next(_formulas(kind, values, sizes), None)
        formula = by_values[kind, values]
        if formula is None:
            return _line(first, position), _REASON
        formulas[position] = formula
    return _rewritten(first, formulas)


def knows_size(program: Program) -> bool:
    """Return whether a program computes with the number of environments."""
    return any(node.op == "rows" for node in program.nodes)


def _rewritten(program: Program, formulas: dict[int, Formula]) -> Program:
    """Return the program with some constants replaced by formulas."""
    rewritten = Program()
    new: list[int] = []  # the node in the new program that replaces each node
    for position, node in enumerate(program.nodes):
        rewritten.line = _line(program, position)
        if position in formulas:
            new.append(formulas[position](rewritten, rewritten.add("rows", "i64")))
        else:
            args = [new[arg] for arg in node.args]
            new.append(rewritten.add(node.op, node.kind, *args, value=node.value, name=node.name, column=node.column))
    rewritten.outputs = {
        name: Output([new[i] for i in output.nodes], output.kind) for name, output in program.outputs.items()
    }
    return rewritten


def _line(program: Program, position: int) -> int | None:
    return program.lines[position] if position < len(program.lines) else None


def _first_difference(programs: Sequence[Program]) -> int | None:
    """Return the first position at which programs differ in more than the value of a constant."""
    count = min(len(program.nodes) for program in programs)
    for position, nodes in enumerate(zip(*(program.nodes for program in programs))):
        if len({_without_constant(node) for node in nodes}) > 1:
            return position
    return None if all(len(program.nodes) == count for program in programs) else count - 1


def _without_constant(node: Node) -> Node:
    return node._replace(value=0) if node.op == "const" else node


def _varying(programs: Sequence[Program]) -> list[int]:
    """Return the positions of constants that are not bitwise equal (NaN equals itself)."""
    pairs = enumerate(zip(*(program.nodes for program in programs)))
    return [
        position for position, nodes in pairs if nodes[0].op == "const" and len({_bits(node) for node in nodes}) > 1
    ]


def _bits(node: Node) -> object:
    return struct.pack("d", node.value) if node.kind in FLOATS else node.value


def _formulas(kind: str, values: Sequence[Number], sizes: Sequence[int]) -> Iterator[Formula]:
    """Yield formulas in the number of environments that give each of the values exactly."""
    if kind == "b" or any(not float(value).is_integer() for value in values):
        yield from _products(kind, values, sizes) if kind in FLOATS else ()
        return
    wanted = [int(value) for value in values]
    for count, make in _counts(wanted, sizes):
        counts = [count(size) for size in sizes]
        slope, rest = divmod(wanted[1] - wanted[0], counts[1] - counts[0] or 1)
        offset = wanted[0] - slope * counts[0]
        if slope and rest == 0 and [slope * n + offset for n in counts] == wanted:
            yield partial(_linear, kind=kind, slope=slope, make=make, offset=offset)


def _linear(p: Program, n: int, kind: str, slope: int, make: Formula, offset: int) -> int:
    return p.cast(_plus(p, _times(p, make(p, n), slope), offset), kind)


def _share(p: Program, n: int, share: float) -> int:
    return p.cast(p.add("mul", "f64", p.const(share, "f64"), p.cast(n, "f64")), "i64")


def _counts(wanted: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[Count, Formula]]:
    """Yield integers that functions compute from the number of environments, common ones first."""
    # n itself
    yield lambda n: n, lambda p, n: n
    # shares, rounded down or up: (k n + offset) // divisor
    divisors = [d for d in range(2, MAX_DIVISOR + 1) if any(size % d == 0 for size in sizes)]
    for divisor in divisors:
        small = divisor <= MAX_SHARE
        for k in range(1, divisor if small else 2):
            for offset in range(divisor) if small else (0, divisor - 1):
                count = (k, offset, divisor)
                yield (
                    lambda n, count=count: (count[0] * n + count[1]) // count[2],
                    lambda p, n, count=count: _quotient(p, _plus(p, _times(p, n, count[0]), count[1]), count[2]),
                )
    for divisor in divisors:
        yield (
            lambda n, d=divisor: n % d,
            lambda p, n, d=divisor: p.add("remainder", "i64", n, p.const(d, "i64")),
        )
    for share in (percent / 100 for percent in range(1, 100)):  # int(share * n), with its rounding
        yield lambda n, share=share: int(share * n), partial(_share, share=share)
    # counts that are bounded
    for op, limit, pick in (("minimum", max(wanted), min), ("maximum", min(wanted), max)):
        yield (
            lambda n, limit=limit, pick=pick: pick(n, limit),
            lambda p, n, op=op, limit=limit: p.add(op, "i64", n, p.const(limit, "i64")),
        )


def _times(p: Program, x: int, factor: int) -> int:
    return x if factor == 1 else p.add("mul", "i64", x, p.const(factor, "i64"))


def _plus(p: Program, x: int, offset: int) -> int:
    return x if offset == 0 else p.add("add", "i64", x, p.const(offset, "i64"))


def _quotient(p: Program, x: int, divisor: int) -> int:
    return x if divisor == 1 else p.add("floordiv", "i64", x, p.const(divisor, "i64"))


def _products(kind: str, values: Sequence[Number], sizes: Sequence[int]) -> Iterator[Formula]:
    """Yield ``factor * n``, ``factor / n``, ``factor / (n - 1)`` and ``factor / (n + 1)``, in double precision."""
    for op, offset in (("mul", 0), ("div", 0), ("div", -1), ("div", 1)):
        for size, value in zip(sizes, values):
            exact = value / size if op == "mul" else value * (size + offset)
            for factor in (exact, float(f"{exact:.9g}"), float(f"{exact:.6g}")):
                results = [factor * n if op == "mul" else factor / (n + offset) for n in sizes]
                if [_rounded(result, kind) for result in results] == [_rounded(number, kind) for number in values]:
                    yield _product(kind, op, factor, offset)


def _rounded(value: Number, kind: str) -> float:
    return struct.unpack("f", struct.pack("f", value))[0] if kind == "f32" else float(value)


def _product(kind: str, op: str, factor: float, offset: int) -> Formula:
    def make(p: Program, rows: int) -> int:
        return p.cast(p.add(op, "f64", p.const(factor, "f64"), p.cast(_plus(p, rows, offset), "f64")), kind)

    return make
