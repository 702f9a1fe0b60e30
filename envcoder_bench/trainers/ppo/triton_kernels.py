"""Triton kernels of linear algebra for CUDA.

``elu_linear_backward`` saves passes over memory; torch is the fallback. ``product`` and ``column_sums`` round each
group's results alike whatever the number of groups. cuBLAS and torch's reductions do not.

For TF32, Triton truncates factors, and most kernels of cuBLAS round them. What a network returns must therefore come
from the same library when it acts and when it learns: ``StackedMLP`` says why.
"""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton, usable_on


def usable(x: Tensor) -> bool:
    """Return whether these kernels support tensors like x."""
    return usable_on(x.device, x.dtype)


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
    k = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inner = tl.arange(0, INNER)
    a += k * a_k + rows[:, None] * a_n + inner[None, :] * a_i
    b += k * b_k + inner[:, None] * b_i + columns[None, :] * b_o
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
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


@jit
def _column_sums(x, out, num_rows, num_columns, x_k, x_n, x_c, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    k = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.arange(0, ROWS)
    x += k * x_k + columns[None, :] * x_c
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, num_rows, ROWS):
        at = start + rows
        mask = (at[:, None] < num_rows) & (columns[None, :] < num_columns)
        total += tl.load(x + at[:, None] * x_n, mask=mask, other=0.0)
    tl.store(out + k * num_columns + columns, tl.sum(total, axis=0), mask=columns < num_columns)


def column_sums(x: Tensor) -> Tensor:
    """Sum ``(K, N, D)`` over N, ``(K, D)``."""
    groups, rows, columns = x.shape
    out = x.new_empty(groups, columns)
    block = min(16, triton.next_power_of_2(columns))
    _column_sums[(triton.cdiv(columns, block), groups)](
        x, out, rows, columns, *x.stride(), ROWS=1024 // block, COLUMNS=block, num_warps=4
    )
    return out
