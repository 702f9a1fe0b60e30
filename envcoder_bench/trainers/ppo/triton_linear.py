"""Linear layers, and ELU after them, as one Triton kernel, for acting and learning in TF32.

Tensor cores take TF32 factors with the inner index last. ``linear`` therefore reads the weights from a transposed copy,
16 bytes at a time. It truncates its factors to TF32, whatever the sizes; cuBLAS has kernels that round them and kernels
that truncate them, and chooses by the sizes.
"""

from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton

TILES = ((128, 64), (64, 64), (64, 32), (64, 16))  # rows and columns of a program, if larger ones give too few
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
        one = tl.where(tail == num_out, 1.0, 0.0)[None, :] + tl.zeros((ROWS, 16), dtype=tl.float32)
        tl.store(out + tail[None, :], one, mask=(rows[:, None] < num_rows) & (tail[None, :] < num_columns))


def linear(x: Tensor, weight: Tensor, out: Tensor, elu: bool, alike: bool = False) -> None:
    """Compute ``x @ weight.mT``, and ELU of it.

    Args:
        x: ``(K, N, in)``, ``in`` and the strides multiples of 4.
        weight: ``(K, out, in)``, each matrix contiguous.
        out: ``(K, N, out)``, whose rows may have gaps; or up to 16 columns more, which receive a 1 and zeros: the
            factors of the next layer's biases and padding. K may be missing in all tensors.
        elu: whether to apply ELU.
        alike: whether to use the same tiles whatever the number of groups.
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
