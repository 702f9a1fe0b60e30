"""The products of linear layers for all groups, as Triton kernels; torch's form is ``mm`` and ``bmm`` in ``mlp.py``.

``linear`` is a layer with ELU after it, in TF32, for acting and learning. Tensor cores take TF32 factors with the inner
index last, so it reads the weights from a transposed copy, 16 bytes at a time. ``elu_linear_backward`` saves passes
over memory. ``product`` rounds each group's results alike whatever the number of groups; cuBLAS does not.

For TF32, Triton always truncates factors; cuBLAS rounds or truncates them, depending on the sizes. A network must
therefore use the same library when it acts and when it learns: ``StackedMLP`` says why.
"""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton

# rows and columns of a program; a smaller tile is used if larger ones give too few programs
TILES = ((128, 64), (64, 64), (64, 32), (64, 16))
MIN_PROGRAMS = 128  # about the number of multiprocessors


@jit
def _transpose(x, out, num_rows, num_columns, x_k, out_k, BLOCK: tl.constexpr):
    k = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows[:, None] < num_rows) & (columns[None, :] < num_columns)
    block = tl.load(x + k * x_k + rows[:, None] * num_columns + columns[None, :], mask=mask)
    mask = (columns[:, None] < num_columns) & (rows[None, :] < num_rows)
    tl.store(out + k * out_k + columns[:, None] * num_rows + rows[None, :], tl.trans(block), mask=mask)


def transpose(x: Tensor, out: Tensor) -> None:
    """Copy ``(K, in, out)`` to ``(K, out, in)``; K may be missing, and each matrix is contiguous."""
    x, out = (t if t.dim() == 3 else t.unsqueeze(0) for t in (x, out))
    groups, rows, columns = x.shape
    grid = (triton.cdiv(columns, 64), triton.cdiv(rows, 64), groups)
    _transpose[grid](x, out, rows, columns, x.stride(0), out.stride(0), BLOCK=64, num_warps=4)


@jit
def _linear(
    x, w, out, num_rows, fours, num_out, num_columns, x_k, x_fours, w_k, out_k, out_n,
    ELU: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(2).to(tl.int64)  # K * N * D may exceed 32 bits
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, INNER)
    num_in, x_n = fours * 4, x_fours * 4  # the compiler must know that 4 divides them, to load 16 bytes
    x += k * x_k + rows[:, None].to(tl.int64) * x_n + inner[None, :]
    w += k * w_k + columns[None, :] * num_in + inner[:, None]
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, num_in, INNER):
        left = num_in - start
        a = tl.load(x, mask=(rows[:, None] < num_rows) & (inner[None, :] < left), other=0.0)
        b = tl.load(w, mask=(inner[:, None] < left) & (columns[None, :] < num_out), other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32")
        x += INNER
        w += INNER
    if ELU:
        total = tl.where(total > 0, total, tl.exp(total) - 1.0)
    out += k * out_k + rows[:, None].to(tl.int64) * out_n
    tl.store(out + columns[None, :], total, mask=(rows[:, None] < num_rows) & (columns[None, :] < num_out))
    if tl.program_id(0) == 0:
        tail = num_out + tl.arange(0, 16)
        ones = tl.where(tail == num_out, 1.0, 0.0)[None, :] + tl.zeros((ROWS, 16), dtype=tl.float32)
        tl.store(out + tail[None, :], ones, mask=(rows[:, None] < num_rows) & (tail[None, :] < num_columns))


def linear(x: Tensor, weight: Tensor, out: Tensor, elu: bool, alike: bool = False) -> None:
    """Compute ``x @ weight.mT``, and ELU of it.

    Args:
        x: ``(K, N, in)``, ``in`` and the strides multiples of 4.
        weight: ``(K, out, in)``, each matrix contiguous.
        out: ``(K, N, out)``, whose rows may have gaps; or up to 16 columns more, which receive a 1 and zeros: the
            factors of the next layer's biases and padding. K may be missing in all tensors.
        elu: whether to apply ELU.
        alike: whether to use the same tiles for any number of groups.
    """
    x, weight, out = (t if t.dim() == 3 else t.unsqueeze(0) for t in (x, weight, out))
    groups, rows, inner = x.shape
    width = weight.shape[1]
    height, tile = _tile(1 if alike else groups, rows, width)
    grid = (triton.cdiv(width, tile), triton.cdiv(rows, height), groups)
    _linear[grid](
        x, weight, out, rows, inner // 4, width, out.shape[2], x.stride(0), x.stride(1) // 4, weight.stride(0),
        out.stride(0), out.stride(1), ELU=elu, ROWS=height, COLUMNS=tile, INNER=32,
        num_warps=8 if height * tile > 8192 else 4, num_stages=3,
    )  # fmt: skip


def _tile(groups: int, rows: int, width: int) -> tuple[int, int]:
    """Return the rows and columns of a program: the most with which there are enough programs, else the fewest."""
    widest = min(128, max(16, int(triton.next_power_of_2(width))))
    for height, tile in ((128, widest), *TILES):
        programs = groups * triton.cdiv(rows, height) * triton.cdiv(width, tile)
        if tile <= widest and programs >= MIN_PROGRAMS:
            return height, tile
    return TILES[-1]


@jit
def _elu_linear_backward(
    d, w, y, out, num_rows, num_in, num_out, d_k, d_n, w_k, w_i, y_k, y_n, out_k, out_n,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(2).to(tl.int64)  # K * N * D may exceed 32 bits
    columns = tl.program_id(0) * IN + tl.arange(0, IN)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, OUT)
    d += k * d_k + rows[:, None] * d_n + inner[None, :]
    w += k * w_k + columns[None, :] * w_i + inner[:, None]
    total = tl.zeros((ROWS, IN), dtype=tl.float32)
    for start in range(0, num_out, OUT):
        left = num_out - start
        a = tl.load(d, mask=(rows[:, None] < num_rows) & (inner[None, :] < left), other=0.0)
        b = tl.load(w, mask=(inner[:, None] < left) & (columns[None, :] < num_in), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        d += OUT
        w += OUT
    mask = (rows[:, None] < num_rows) & (columns[None, :] < num_in)
    value = tl.load(y + k * y_k + rows[:, None] * y_n + columns[None, :], mask=mask, other=0.0)
    total *= tl.where(value > 0, 1.0, value + 1.0)
    tl.store(out + k * out_k + rows[:, None] * out_n + columns[None, :], total, mask=mask)


def elu_linear_backward(grad: Tensor, weight: Tensor, y: Tensor, out: Tensor) -> None:
    """Differentiate ELU and the linear layer after it in one pass: ``out = (grad @ weight.mT) * elu'(y)``.

    Args:
        grad: ``(K, N, out)``, gradient by the layer's output.
        weight: ``(K, in, out)``.
        y: ``(K, N, in)``, the layer's input, ELU's value.
        out: ``(K, N, in)``; it may be y, of which each program reads only what it overwrites. Rows of all tensors may
            have gaps, and K may be missing.
    """
    grad, weight, y, out = (x if x.dim() == 3 else x.unsqueeze(0) for x in (grad, weight, y, out))
    groups, rows, columns = out.shape
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    grid = (triton.cdiv(columns, 64), triton.cdiv(rows, 128), groups)
    _elu_linear_backward[grid](
        grad, weight, y, out, rows, columns, grad.shape[2], grad.stride(0), grad.stride(1), weight.stride(0),
        weight.stride(1), y.stride(0), y.stride(1), out.stride(0), out.stride(1), PRECISION=precision, ROWS=128, IN=64,
        OUT=32, num_warps=4, num_stages=3,
    )  # fmt: skip


@jit
def _product(
    a, b, out, num_rows, num_columns, num_inner, a_k, a_n, a_i, b_k, b_i, b_o, out_k, out_n,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    # a tile of one group's result
    k = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, INNER)
    a += k * a_k + rows[:, None] * a_n + inner[None, :] * a_i
    b += k * b_k + inner[:, None] * b_i + columns[None, :] * b_o
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    # zeros beyond the ends add nothing
    for start in range(0, num_inner, INNER):
        left = num_inner - start
        x = tl.load(a, mask=(rows[:, None] < num_rows) & (inner[None, :] < left), other=0.0)
        y = tl.load(b, mask=(inner[:, None] < left) & (columns[None, :] < num_columns), other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION)
        a += INNER * a_i
        b += INNER * b_i
    mask = (rows[:, None] < num_rows) & (columns[None, :] < num_columns)
    tl.store(out + k * out_k + rows[:, None] * out_n + columns[None, :], total, mask=mask)


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Compute ``out = a @ b`` for ``(K, N, I)`` and ``(K, I, O)``; the same tiles for any K, which may be missing."""
    left, right, result = (x if x.dim() == 3 else x.unsqueeze(0) for x in (a, b, out))
    groups, rows, columns = result.shape
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    grid = (triton.cdiv(columns, 64), triton.cdiv(rows, 64), groups)
    _product[grid](
        left, right, result, rows, columns, left.shape[2], *left.stride(), *right.stride(), result.stride(0),
        result.stride(1), PRECISION=precision, ROWS=64, COLUMNS=64, INNER=32, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
