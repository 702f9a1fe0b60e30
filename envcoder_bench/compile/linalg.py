"""Rules for small matrices of each environment: inverses, systems of equations, determinants, Cholesky factors.

Loops are unrolled and rows are swapped by selects, so that programs have no branches. Where torch raises (for a matrix
that is singular or not positive definite), a program cannot: its results are infinite or NaN, as those of
``torch.linalg.inv_ex``, and its ``info`` equals torch's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from envcoder_bench.compile.program import Program, Untraceable, Value, kind_of
from envcoder_bench.compile.values import Arguments, Result, Values, rule

Matrix = list[list[int]]  # nodes, row by row
MAX_WIDTH = 16  # largest width of a matrix; the number of operations grows with its cube


def _matrices(rec: Values, x: Tensor, kind: str) -> np.ndarray:
    """Return the nodes of (a batch of) matrices, ``(..., rows, columns)``.

    Neither axis of a square matrix is the axis of environments, because the recorder refuses tensors with two of them.
    The columns of a right-hand side are independent, so that they may be the environments.
    """
    nodes = rec.nodes(x, kind)
    if max(nodes.shape[-2:]) > MAX_WIDTH:
        raise Untraceable(f"solves with a matrix of {nodes.shape[-2:]}; programs do up to {MAX_WIDTH} rows and columns")
    return nodes


def _each(change: Callable[..., Any], *batches: np.ndarray) -> list[Any]:
    """Apply ``change`` to the matrices at each position of broadcast batches."""
    lead = np.broadcast_shapes(*(x.shape[:-2] for x in batches))
    wide = [np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in batches]
    return [change(*(x[position].tolist() for x in wide)) for position in np.ndindex(*lead)]


def _value(rec: Values, nodes: Any, result: Tensor) -> Value:
    return Value.of(np.array(nodes, dtype=np.int64).reshape(rec.shape(result)), kind_of(result.dtype))


def _transposed(x: Matrix) -> Matrix:
    return [list(column) for column in zip(*x)]


def _minus_products(p: Program, kind: str, x: int, left: list[int], right: list[int]) -> int:
    """Compute ``x - sum(left * right)``, first products first."""
    for u, v in zip(left, right):
        x = p.add("sub", kind, x, p.add("mul", kind, u, v))
    return x


# Gaussian elimination


def _eliminated(p: Program, kind: str, rows: Matrix) -> tuple[Matrix, int]:
    """Make the square at the left of ``rows`` upper triangular, with partial pivoting.

    Returns:
        rows: the new rows.
        odd: whether the number of row swaps is odd.
    """
    rows, odd = [list(row) for row in rows], p.const(False, "b")
    for k, top in enumerate(rows):
        for row in rows[k + 1 :]:  # move the largest number of the column up
            larger = p.add("gt", "b", p.add("abs", kind, row[k]), p.add("abs", kind, top[k]))
            odd = p.add("xor", "b", odd, larger)
            for j in range(k, len(top)):
                x, y = top[j], row[j]
                if x != y:
                    top[j], row[j] = p.add("select", kind, larger, y, x), p.add("select", kind, larger, x, y)
        for row in rows[k + 1 :]:
            factor = p.add("div", kind, row[k], top[k])
            row[k + 1 :] = [_minus_products(p, kind, y, [factor], [x]) for x, y in zip(top[k + 1 :], row[k + 1 :])]
    return rows, odd


def _back(p: Program, kind: str, upper: Matrix, right: Matrix, unit: bool = False) -> Matrix:
    """Solve ``upper @ x = right``; the part below the diagonal is not read."""
    n, x = len(upper), [list(row) for row in right]
    for i in range(n - 1, -1, -1):
        for j, y in enumerate(right[i]):
            rest = _minus_products(p, kind, y, upper[i][i + 1 :], [row[j] for row in x[i + 1 :]])
            x[i][j] = rest if unit else p.add("div", kind, rest, upper[i][i])
    return x


def _forward(p: Program, kind: str, lower: Matrix, right: Matrix, unit: bool = False) -> Matrix:
    """Solve ``lower @ x = right``; the part above the diagonal is not read."""
    turned = _back(p, kind, [row[::-1] for row in lower[::-1]], right[::-1], unit)
    return turned[::-1]


def _first(p: Program, wrong: list[int]) -> int:
    """Return the position (from 1) of the first true value, else 0, as LAPACK's ``info``."""
    info = p.const(0, "i32")
    for position in range(len(wrong), 0, -1):
        info = p.add("select", "i32", wrong[position - 1], p.const(position, "i32"), info)
    return info


def _solved(p: Program, kind: str, left: Matrix, right: Matrix) -> tuple[Matrix, int]:
    """Solve ``left @ x = right``; return x and ``info``, the position of the first pivot that is zero."""
    n, zero = len(left), p.const(0, kind)
    rows, _ = _eliminated(p, kind, [u + v for u, v in zip(left, right)])
    info = _first(p, [p.add("eq", "b", rows[k][k], zero) for k in range(n)])
    return _back(p, kind, [row[:n] for row in rows], [row[n:] for row in rows]), info


def _identity(p: Program, kind: str, n: int) -> Matrix:
    zero, one = p.const(0, kind), p.const(1, kind)
    return [[one if i == j else zero for j in range(n)] for i in range(n)]


@rule("linalg_inv_ex")
def _inverse(rec: Values, a: Arguments, result: Any) -> Result:
    p, kind, n = rec.program, kind_of(result[0].dtype), a["A"].shape[-1]
    matrices = _each(lambda x: _solved(p, kind, x, _identity(p, kind, n)), _matrices(rec, a["A"], kind))
    return [_value(rec, [x for x, _ in matrices], result[0]), _value(rec, [info for _, info in matrices], result[1])]


@rule("_linalg_solve_ex")
def _solve(rec: Values, a: Arguments, result: Any) -> Result:
    """Return the solution and ``info``; the factors, which torch returns for derivatives, have no value."""
    p, kind, left, right = rec.program, kind_of(result[0].dtype), a["A"], a["B"]
    x = _matrices(rec, left, kind)
    if right.dim() == 1 or (right.dim() == left.dim() - 1 and right.shape == left.shape[:-1]):
        y = rec.nodes(right, kind)[..., None]
    else:
        y = _matrices(rec, right, kind)
    if not a["left"]:  # x @ A = B
        x, y = np.swapaxes(x, -1, -2), np.swapaxes(y, -1, -2)
    rows = _each(lambda u, v: _solved(p, kind, u, v), x, y)
    solutions = [solution if a["left"] else _transposed(solution) for solution, _ in rows]
    return [_value(rec, solutions, result[0]), None, None, _value(rec, [info for _, info in rows], result[3])]


@rule("_linalg_check_errors")
def _check_errors(rec: Values, a: Arguments, result: None) -> Result:
    """Record nothing: torch raises for ``info`` here, and in a kernel the results are not finite."""
    return []


def _pivots(p: Program, kind: str, square: Matrix) -> tuple[list[int], int]:
    """Return the pivots of a square matrix, and whether the sign of their product differs from the determinant's."""
    rows, odd = _eliminated(p, kind, square)
    return [rows[k][k] for k in range(len(rows))], odd


@rule("_linalg_det")
def _determinant(rec: Values, a: Arguments, result: Any) -> Result:
    p, kind = rec.program, kind_of(result[0].dtype)

    def make(square: Matrix) -> int:
        pivots, odd = _pivots(p, kind, square)
        # after a zero pivot the others are NaN and must not count
        product, zero = p.const(1, kind), p.const(0, kind)
        for pivot in reversed(pivots):
            product = p.add("select", kind, p.add("eq", "b", pivot, zero), zero, p.add("mul", kind, product, pivot))
        return p.add("select", kind, odd, p.add("neg", kind, product), product)

    return [_value(rec, _each(make, _matrices(rec, a["A"], kind)), result[0])]


@rule("_linalg_slogdet")
def _sign_and_log_of_determinant(rec: Values, a: Arguments, result: Any) -> Result:
    p, kind = rec.program, kind_of(result[0].dtype)

    def make(square: Matrix) -> tuple[int, int]:
        pivots, odd = _pivots(p, kind, square)
        zero, one = p.const(0, kind), p.const(1, kind)
        sign, log = p.add("select", kind, odd, p.const(-1, kind), one), zero
        # a pivot of zero makes the sign 0 and the logarithm -inf
        for pivot in reversed(pivots):
            is_zero = p.add("eq", "b", pivot, zero)
            size = p.add("log", kind, p.add("abs", kind, pivot))
            turned = p.add("select", kind, p.add("lt", "b", pivot, zero), p.add("neg", kind, sign), sign)
            sign = p.add("select", kind, is_zero, zero, turned)
            log = p.add("select", kind, is_zero, size, p.add("add", kind, log, size))
        return sign, log

    pairs = _each(make, _matrices(rec, a["A"], kind))
    return [_value(rec, [pair[i] for pair in pairs], result[i]) for i in (0, 1)]


# Cholesky factors


def _cholesky(p: Program, kind: str, square: Matrix) -> tuple[Matrix, int]:
    """Return the lower factor, from the lower triangle only, and ``info``, the first minor that is not positive."""
    zero, factor, wrong = p.const(0, kind), [], []
    for i, row in enumerate(square):
        factor_row: list[int] = []
        for j in range(i):
            rest = _minus_products(p, kind, row[j], factor_row, factor[j][:j])
            factor_row.append(p.add("div", kind, rest, factor[j][j]))
        rest = _minus_products(p, kind, row[i], factor_row, factor_row)
        wrong.append(p.add("not", "b", p.add("gt", "b", rest, zero)))
        factor.append([*factor_row, p.add("sqrt", kind, rest), *([zero] * (len(square) - 1 - i))])
    return factor, _first(p, wrong)


def _lower(rec: Values, x: Tensor, kind: str, upper: bool) -> np.ndarray:
    """Return the nodes of a matrix given by its lower (or ``upper``) triangle, as a lower triangle."""
    nodes = _matrices(rec, x, kind)
    return np.swapaxes(nodes, -1, -2) if upper else nodes


@rule("linalg_cholesky_ex")
def _cholesky_ex(rec: Values, a: Arguments, result: Any) -> Result:
    p, kind = rec.program, kind_of(result[0].dtype)
    triangles = _each(lambda x: _cholesky(p, kind, x), _lower(rec, a["self"], kind, a["upper"]))
    factors = [_transposed(factor) if a["upper"] else factor for factor, _ in triangles]
    return [_value(rec, factors, result[0]), _value(rec, [info for _, info in triangles], result[1])]


def _with_factor(p: Program, kind: str, lower: Matrix, right: Matrix) -> Matrix:
    """Solve ``lower @ lower.T @ x = right``."""
    return _back(p, kind, _transposed(lower), _forward(p, kind, lower, right))


@rule("cholesky_solve")
def _cholesky_solve(rec: Values, a: Arguments, result: Tensor) -> Result:
    p, kind = rec.program, kind_of(result.dtype)
    lower = _lower(rec, a["input2"], kind, a["upper"])
    solutions = _each(lambda x, y: _with_factor(p, kind, x, y), lower, _matrices(rec, a["self"], kind))
    return _value(rec, solutions, result)


@rule("cholesky_inverse")
def _cholesky_inverse(rec: Values, a: Arguments, result: Tensor) -> Result:
    p, kind, n = rec.program, kind_of(result.dtype), result.shape[-1]
    lower = _lower(rec, a["self"], kind, a["upper"])
    return _value(rec, _each(lambda x: _with_factor(p, kind, x, _identity(p, kind, n)), lower), result)


@rule("linalg_solve_triangular")
def _solve_triangular(rec: Values, a: Arguments, result: Tensor) -> Result:
    p, kind, upper, left = rec.program, kind_of(result.dtype), a["upper"], a["left"]
    x, y = (_matrices(rec, a[name], kind) for name in ("self", "B"))
    if not left:  # x @ A = B
        x, y, upper = np.swapaxes(x, -1, -2), np.swapaxes(y, -1, -2), not upper
    solve = _back if upper else _forward
    solutions = _each(lambda u, v: solve(p, kind, u, v, a["unitriangular"]), x, y)
    return _value(rec, solutions if left else [_transposed(solution) for solution in solutions], result)


@rule("diag_embed")
def _diag_embed(rec: Values, a: Arguments, result: Tensor) -> Result:
    kind = kind_of(result.dtype)
    nodes = np.full(rec.shape(result), rec.program.const(0, kind), dtype=np.int64)
    diagonal = np.diagonal(nodes, a["offset"], a["dim1"], a["dim2"])
    diagonal.flags.writeable = True
    diagonal[...] = rec.nodes(a["self"])
    return Value.of(nodes, kind)
