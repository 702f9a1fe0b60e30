"""The statistics of ``GroupedRunningMeanStd``, and normalization, as one Triton kernel each."""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton


@jit
def _join(
    mean, var, running_mean, running_var, counts, alive, padding, scale, shift, rounds, batches, groups, width, one,
    EACH: tl.constexpr, EPSILON: tl.constexpr, MASKED: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    used, at, size = columns < width, k * width + columns, groups * width
    n = tl.full((), EACH, tl.float64)
    if MASKED:
        n *= tl.load(alive + k).to(tl.float64)
    count = tl.load(counts + k)
    own = tl.load(padding + at, mask=used, other=1) == 0 if PADDED else used
    m, v = tl.load(running_mean + at, mask=used, other=0.0), tl.load(running_var + at, mask=used, other=1.0)
    for _ in range(0, rounds):
        for i in range(0, batches):
            new_m = tl.load(mean + i * size + at, mask=used, other=0.0)
            new_v = tl.load(var + i * size + at, mask=used, other=0.0)
            count += n
            weight = tl.where(own, n / count, 0.0)
            delta = new_m - m
            m += weight * delta
            v += weight * delta * delta
            v += weight * (new_v - v)
            # as in rl_games, statistics are rounded to float32 before use
            factor = 1.0 / tl.sqrt(v.to(tl.float32) + EPSILON).to(tl.float64)
            factor = tl.where(own, factor, 0.0)
            summand = tl.where(columns == one, 1.0, -m.to(tl.float32).to(tl.float64) * factor)
            tl.store(scale + at, factor.to(tl.float32), mask=used)
            tl.store(shift + at, summand.to(tl.float32), mask=used)
            scale += size
            shift += size
    tl.store(running_mean + at, m, mask=used)
    tl.store(running_var + at, v, mask=used)
    tl.store(counts + k, count)


def join_moments(
    moments: list[tuple[Tensor, Tensor]], each: int, rounds: int, running: tuple[Tensor, Tensor, Tensor],
    alive: Tensor | None, padding: Tensor | None, one: int | None, epsilon: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As ``GroupedRunningMeanStd.update_each`` after the moments of its batches, in one kernel.

    Args:
        moments: mean and variance ``(K, D)`` float64 of each batch.
        each: number of samples of a batch.
        running: mean, variance ``(K, D)`` and count ``(K, 1)``, float64; changed in place.
        padding: ``(K, D)`` bool, columns that a group does not have (None: no such columns).
        one: the column that is 1 after normalization.

    Returns:
        Factors and summands of ``normalize`` after each step, ``(rounds * batches, K, 1, D)`` float32.
    """
    mean, var = (torch.stack(values) for values in zip(*moments))
    groups, width = running[0].shape
    scale, shift = torch.empty(2, rounds * len(moments), groups, 1, width, device=mean.device)
    _join[(groups,)](
        mean, var, *running, mean if alive is None else alive.view(torch.uint8),
        mean if padding is None else padding.view(torch.uint8), scale, shift, rounds, len(moments), groups, width,
        -1 if one is None else one, EACH=each, EPSILON=epsilon, MASKED=alive is not None, PADDED=padding is not None,
        COLUMNS=triton.next_power_of_2(width), num_warps=1,
    )  # fmt: skip
    return scale, shift


@jit
def _normalize(
    x, scale, shift, out, num_rows, width, x_k, x_n, factor_k, out_k, out_n, CLIP: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    rows, columns = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    used = columns < width
    mask = (rows < num_rows)[:, None] & used[None, :]
    factor = tl.load(scale + k * factor_k + columns, mask=used, other=0.0)[None, :]
    summand = tl.load(shift + k * factor_k + columns, mask=used, other=0.0)[None, :]
    value = tl.load(x + k * x_k + rows[:, None] * x_n + columns[None, :], mask=mask, other=0.0) * factor + summand
    value = tl.minimum(value, CLIP, propagate_nan=tl.PropagateNan.ALL)
    value = tl.maximum(value, -CLIP, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + k * out_k + rows[:, None] * out_n + columns[None, :], value, mask=mask)


def normalize(x: Tensor, scale: Tensor, shift: Tensor, clip: float, out: Tensor | None) -> Tensor:
    """Scale, shift and clip ``(K, N, D)`` in one pass; scale and shift are contiguous ``(K, 1, D)``."""
    out = x.new_empty(x.shape) if out is None else out
    groups, count, width = x.shape
    columns = triton.next_power_of_2(width)
    rows = max(1, 2048 // columns)
    _normalize[(triton.cdiv(count, rows), groups)](
        x, scale, shift, out, count, width, x.stride(0), x.stride(1), scale.stride(0), out.stride(0), out.stride(1),
        CLIP=clip, ROWS=rows, COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return out
