"""Batch normalization of many groups with a ReLU: by torch's operators, and by kernels.

``x`` is ``(groups, samples, width)``; scales and statistics are ``(groups, width)``. Each of torch's operators is a
pass over ``x``, and normalization is most of an update's memory traffic; the kernels read ``x`` twice each way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl

EPSILON, MOMENTUM = 1e-5, 0.01
_NOTHING = (None,) * 5  # gradients of arguments that have none


class BatchNorm(torch.autograd.Function):
    """Normalize by the samples' statistics, multiply by ``scale`` and add ``shift``, then a ReLU if ``relu``.

    Adds the mean and the unbiased variance to ``running_mean`` and ``running_var`` with a weight of ``MOMENTUM``, and
    returns the result in ``dtype``. Autograd would keep several tensors of the samples' size for what is one
    multiplication and one addition.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, running_mean: Tensor, running_var: Tensor, relu: bool,
        dtype: torch.dtype, kernels: bool,
    ) -> Tensor:  # fmt: skip
        ctx.relu, ctx.kernels = relu, kernels
        if kernels:
            x = x.contiguous()  # a single group's may be expanded
            mean, rstd, factor, offset = _forward_statistics(x, scale, shift, running_mean, running_var)
        else:
            single = x.to(scale.dtype)
            mean = single.mean(dim=1)
            var = (single - mean.unsqueeze(1)).square_().mean(dim=1)  # torch.var is not vectorized on a CPU
            rstd = torch.rsqrt(var + EPSILON)
            factor = scale * rstd
            offset = shift - mean * factor
            running_mean.lerp_(mean, MOMENTUM)
            running_var.lerp_(var * (x.shape[1] / (x.shape[1] - 1)), MOMENTUM)
        y = _affine(x, factor, offset, relu, dtype, kernels)
        ctx.save_for_backward(x, None if kernels or not relu else y, mean, rstd, factor, offset)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, mean, rstd, factor, offset = ctx.saved_tensors
        if ctx.kernels:
            dx, d_scale, d_shift = _backward(grads[0].contiguous(), x, mean, rstd, factor, offset, ctx.relu)
            return dx, d_scale, d_shift, *_NOTHING
        grad, single = grads[0].to(mean.dtype), x.to(mean.dtype)
        if y is not None:
            grad = grad * y.sign()  # of the ReLU; masked_fill is not vectorized on a CPU
        d_shift = grad.sum(dim=1)
        d_scale = ((grad * single).sum(dim=1) - mean * d_shift) * rstd
        # dx = factor (grad - mean(grad) - x_hat mean(grad x_hat)), as a combination of grad, x and a constant
        of_x = -factor * rstd * d_scale / x.shape[1]
        constant = -factor * d_shift / x.shape[1] - of_x * mean
        constant, of_x, factor = (each.unsqueeze(1) for each in (constant, of_x, factor))
        dx = torch.addcmul(torch.addcmul(constant, single, of_x), grad, factor)
        return dx.to(x.dtype), d_scale, d_shift, *_NOTHING


class FixedNorm(torch.autograd.Function):
    """Multiply by a constant ``factor``, add a constant ``offset``, then a ReLU if ``relu``; return it in ``dtype``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, factor: Tensor, offset: Tensor, relu: bool, dtype: torch.dtype, kernels: bool
    ) -> Tensor:
        ctx.relu, ctx.kernels, ctx.dtype = relu, kernels, x.dtype
        x = x.contiguous() if kernels else x
        y = _affine(x, factor, offset, relu, dtype, kernels)
        ctx.save_for_backward(x if kernels else None, None if kernels or not relu else y, factor, offset)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, y, factor, offset = ctx.saved_tensors
        if ctx.kernels:
            dx = torch.empty_like(x)
            grid, sizes = _grid(x)
            _differentiate[grid](
                grads[0].contiguous(), x, dx, factor, offset, offset, offset, factor.stride(0), offset.stride(0), 0,
                *sizes, STATISTICS=False, RELU=ctx.relu, **_TILE,
            )  # fmt: skip
        else:
            grad = grads[0] if y is None else grads[0] * y.sign()
            dx = (grad * factor.unsqueeze(1)).to(ctx.dtype)
        return dx, *_NOTHING


def _affine(x: Tensor, factor: Tensor, offset: Tensor, relu: bool, dtype: torch.dtype, kernels: bool) -> Tensor:
    if kernels:
        y = torch.empty(x.shape, dtype=dtype, device=x.device)
        grid, sizes = _grid(x)
        _multiply_and_add[grid](x, y, factor, offset, factor.stride(0), offset.stride(0), *sizes, RELU=relu, **_TILE)
        return y
    y = torch.addcmul(offset.unsqueeze(1), x.to(factor.dtype), factor.unsqueeze(1))
    return (torch.relu_(y) if relu else y).to(dtype)


# the same as kernels. A program has some columns of a *chunk* of a group's rows, so that a group's sums do not depend
# on the other groups

_CHUNK, _COLUMNS = 256, 64
_TILE = {"CHUNK": _CHUNK, "ROWS": 16, "COLUMNS": _COLUMNS}


def _grid(x: Tensor) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """Return the programs for a contiguous ``x``, and its samples and width."""
    assert x.is_contiguous()
    groups, samples, width = x.shape
    return (-(-width // _COLUMNS), -(-samples // _CHUNK), groups), (samples, width)


def _forward_statistics(
    x: Tensor, scale: Tensor, shift: Tensor, running_mean: Tensor, running_var: Tensor
) -> tuple[Tensor, ...]:
    """Return mean, inverse deviation, factor and offset, ``(groups, width)`` each; update the running statistics."""
    (columns, chunks, groups), (samples, width) = grid, sizes = _grid(x)
    sums = torch.empty(groups, chunks, 2, width, dtype=torch.float32, device=x.device)
    stats = torch.empty(groups, 4, width, dtype=torch.float32, device=x.device)
    _sum[grid](x, x, sums, x, x, x, samples * width, 0, 0, *sizes, BACKWARD=False, RELU=False, **_TILE)
    _finish[(columns, groups)](
        x, sums, stats, scale, shift, running_mean, running_var, scale.stride(0), running_mean.stride(0), chunks,
        *sizes, EPSILON=EPSILON, MOMENTUM=MOMENTUM, COLUMNS=_COLUMNS, num_warps=1,
    )  # fmt: skip
    return stats.unbind(dim=1)


def _backward(
    grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, factor: Tensor, offset: Tensor, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    (columns, chunks, groups), (_, width) = grid, sizes = _grid(x)
    sums = torch.empty(groups, chunks, 2, width, dtype=torch.float32, device=x.device)
    d_scale, d_shift, of_x, constant = torch.empty(4, groups, width, dtype=torch.float32, device=x.device)
    stride = mean.stride(0)
    _sum[grid](grad, x, sums, mean, factor, offset, stride, stride, stride, *sizes, BACKWARD=True, RELU=relu, **_TILE)
    _finish_backward[(columns, groups)](
        sums, mean, rstd, factor, d_scale, d_shift, of_x, constant, stride, chunks, *sizes,
        COLUMNS=_COLUMNS, num_warps=1,
    )  # fmt: skip
    dx = torch.empty_like(x)
    _differentiate[grid](
        grad, x, dx, factor, offset, of_x, constant, stride, stride, width, *sizes, STATISTICS=True, RELU=relu, **_TILE
    )
    return dx, d_scale, d_shift


@jit
def _sum(
    grad, x, sums, center, factor, offset, center_g, factor_g, offset_g, samples, width,
    BACKWARD: tl.constexpr, RELU: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum d and d^2, or the gradient and its product with d, over a chunk; d is x minus a center near its mean."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    chunk, g = tl.program_id(1), tl.program_id(2).to(tl.int64)
    inside = column < width
    near = tl.load(center + g * center_g + column, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        slope = tl.load(factor + g * factor_g + column, mask=inside, other=0.0)
        height = tl.load(offset + g * offset_g + column, mask=inside, other=0.0)
    first = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    second = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, CHUNK, ROWS):
        row = chunk * CHUNK + start + tl.arange(0, ROWS)
        mask = (row[:, None] < samples) & inside[None, :]
        at = (g * samples + row[:, None]) * width + column[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        d = tl.where(mask, value - near[None, :], 0.0)
        if BACKWARD:
            part = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
            if RELU:
                part = tl.where(value * slope[None, :] + height[None, :] > 0.0, part, 0.0)
            first += part
            second += part * d
        else:
            first += d
            second += d * d
    sums += (g * tl.num_programs(1) + chunk) * 2 * width + column
    tl.store(sums, tl.sum(first, axis=0), mask=inside)
    tl.store(sums + width, tl.sum(second, axis=0), mask=inside)


@jit
def _finish(
    x, sums, stats, scale, shift, running_mean, running_var, scale_g, running_g, chunks, samples, width,
    EPSILON: tl.constexpr, MOMENTUM: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute a group's statistics, and the factor and offset that normalize by them."""
    column, g = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1).to(tl.int64)
    inside = column < width
    first = tl.zeros((COLUMNS,), dtype=tl.float32)
    second = tl.zeros((COLUMNS,), dtype=tl.float32)
    sums += g * chunks * 2 * width + column
    for chunk in range(0, chunks):
        first += tl.load(sums + chunk * 2 * width, mask=inside, other=0.0)
        second += tl.load(sums + (chunk * 2 + 1) * width, mask=inside, other=0.0)
    away = first / samples
    mean = tl.load(x + g * samples * width + column, mask=inside, other=0.0).to(tl.float32) + away
    var = tl.maximum(second / samples - away * away, 0.0, propagate_nan=tl.PropagateNan.ALL)
    rstd = 1.0 / tl.sqrt(var + EPSILON)
    slope = tl.load(scale + g * scale_g + column, mask=inside, other=0.0) * rstd
    height = tl.load(shift + g * scale_g + column, mask=inside, other=0.0) - mean * slope
    stats += g * 4 * width + column
    tl.store(stats, mean, mask=inside)
    tl.store(stats + width, rstd, mask=inside)
    tl.store(stats + 2 * width, slope, mask=inside)
    tl.store(stats + 3 * width, height, mask=inside)
    running_mean += g * running_g + column
    running_var += g * running_g + column
    before = tl.load(running_mean, mask=inside, other=0.0)
    tl.store(running_mean, before + MOMENTUM * (mean - before), mask=inside)
    before = tl.load(running_var, mask=inside, other=0.0)
    tl.store(running_var, before + MOMENTUM * (var * samples / (samples - 1) - before), mask=inside)


@jit
def _multiply_and_add(
    x, y, factor, offset, factor_g, offset_g, samples, width,
    RELU: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    g, inside = tl.program_id(2).to(tl.int64), column < width
    slope = tl.load(factor + g * factor_g + column, mask=inside, other=0.0)
    height = tl.load(offset + g * offset_g + column, mask=inside, other=0.0)
    for start in range(0, CHUNK, ROWS):
        row = tl.program_id(1) * CHUNK + start + tl.arange(0, ROWS)
        mask = (row[:, None] < samples) & inside[None, :]
        at = (g * samples + row[:, None]) * width + column[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) * slope[None, :] + height[None, :]
        if RELU:
            value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@jit
def _finish_backward(
    sums, mean, rstd, factor, d_scale, d_shift, of_x, constant, stats_g, chunks, samples, width, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of scale and shift, and the part ``of_x x + constant`` of the gradient of x."""
    column, g = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1).to(tl.int64)
    inside = column < width
    first = tl.zeros((COLUMNS,), dtype=tl.float32)
    second = tl.zeros((COLUMNS,), dtype=tl.float32)
    sums += g * chunks * 2 * width + column
    for chunk in range(0, chunks):
        first += tl.load(sums + chunk * 2 * width, mask=inside, other=0.0)
        second += tl.load(sums + (chunk * 2 + 1) * width, mask=inside, other=0.0)
    root = tl.load(rstd + g * stats_g + column, mask=inside, other=0.0)
    slope = tl.load(factor + g * stats_g + column, mask=inside, other=0.0)
    slant = -slope * root * root * second / samples
    out = g * width + column
    tl.store(d_scale + out, second * root, mask=inside)
    tl.store(d_shift + out, first, mask=inside)
    tl.store(of_x + out, slant, mask=inside)
    center = tl.load(mean + g * stats_g + column, mask=inside, other=0.0)
    tl.store(constant + out, -slope * first / samples - slant * center, mask=inside)


@jit
def _differentiate(
    grad, x, dx, factor, offset, of_x, constant, factor_g, offset_g, more_g, samples, width,
    STATISTICS: tl.constexpr, RELU: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    g, inside = tl.program_id(2).to(tl.int64), column < width
    slope = tl.load(factor + g * factor_g + column, mask=inside, other=0.0)
    height = tl.load(offset + g * offset_g + column, mask=inside, other=0.0)
    if STATISTICS:
        slant = tl.load(of_x + g * more_g + column, mask=inside, other=0.0)
        added = tl.load(constant + g * more_g + column, mask=inside, other=0.0)
    for start in range(0, CHUNK, ROWS):
        row = tl.program_id(1) * CHUNK + start + tl.arange(0, ROWS)
        mask = (row[:, None] < samples) & inside[None, :]
        at = (g * samples + row[:, None]) * width + column[None, :]
        part = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        if RELU:
            part = tl.where(value * slope[None, :] + height[None, :] > 0.0, part, 0.0)
        result = part * slope[None, :]
        if STATISTICS:
            result += value * slant[None, :] + added[None, :]
        tl.store(dx + at, result.to(dx.dtype.element_ty), mask=mask)
