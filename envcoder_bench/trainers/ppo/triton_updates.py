"""Triton kernels for the steps of learning that are many small operations of torch: Adam, the learning rates, the
normalizers' statistics, and advantages."""

from __future__ import annotations

import torch
from torch import Tensor

from envcoder_bench.trainers.ppo.triton_import import jit, tl, triton


@jit
def _adam(
    weights, grad, exp_avg, exp_avg_sq, norm, learning_rate, powers, alive, size, max_norm, decay,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, CLIPPED: tl.constexpr, MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    k = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < (size * tl.load(alive + k).to(tl.int32) if MASKED else size)
    at += k * size
    root = tl.sqrt(1.0 - tl.load(powers + 1))  # float64, as the learning rate
    step_size = (tl.load(learning_rate + k) * (root / (1.0 - tl.load(powers)))).to(tl.float32)
    p = tl.load(weights + at, mask=mask)
    g = tl.load(grad + at, mask=mask)
    if CLIPPED:
        g *= tl.minimum(max_norm / (tl.load(norm + k) + 1e-6), 1.0, propagate_nan=tl.PropagateNan.ALL)
    g += decay * p
    m = tl.load(exp_avg + at, mask=mask)
    v = tl.load(exp_avg_sq + at, mask=mask)
    m += (g - m) * (1.0 - BETA1)
    v = v * BETA2 + g * g * (1.0 - BETA2)
    tl.store(exp_avg + at, m, mask=mask)
    tl.store(exp_avg_sq + at, v, mask=mask)
    tl.store(weights + at, p - step_size * m / (tl.sqrt(v) + (EPSILON * root).to(tl.float32)), mask=mask)


def adam(
    params: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, norm: Tensor | None, learning_rate: Tensor,
    powers: Tensor, alive: Tensor | None, max_norm: float | None, weight_decay: float,
    betas: tuple[float, float, float],
) -> None:  # fmt: skip
    """Apply Adam's update to ``(K, P)`` tensors in one pass.

    Args:
        norm: ``(K,)``, the gradients' norms if they are clipped to ``max_norm``.
        learning_rate: ``(K,)`` float64.
        powers: ``(2,)`` float64, both betas to the power of the number of steps including this one.
        alive: ``(K,)`` bool, groups to update (None: all).
        betas: and epsilon.
    """
    groups, size = params.shape
    clipped = norm is not None and max_norm is not None
    _adam[(triton.cdiv(size, 1024), groups)](
        params, grad, exp_avg, exp_avg_sq, norm if clipped else params, learning_rate, powers,
        params if alive is None else alive.view(torch.uint8), size, max_norm if clipped else 0.0, weight_decay,
        BETA1=betas[0], BETA2=betas[1], EPSILON=betas[2], CLIPPED=clipped, MASKED=alive is not None, BLOCK=1024,
    )  # fmt: skip


@jit
def _adapt(rate, kl, num_groups, LOW: tl.constexpr, HIGH: tl.constexpr, LEAST: tl.constexpr, MOST: tl.constexpr):
    k = tl.arange(0, 128) + tl.program_id(0) * 128
    mask = k < num_groups
    old, distance = tl.load(rate + k, mask=mask), tl.load(kl + k, mask=mask).to(tl.float64)
    lower, higher = old / 1.5, old * 1.5
    new = tl.where(distance > HIGH, tl.where(lower > LEAST, lower, LEAST), old)
    new = tl.where(distance < LOW, tl.where(higher < MOST, higher, MOST), new)
    tl.store(rate + k, new, mask=mask)


def adapt(learning_rate: Tensor, kl: Tensor, threshold: float, least: float, most: float) -> None:
    """Change the learning rates ``(K,)`` float64 in place, as ``ppo.next_learning_rate`` with ``adaptive``."""
    _adapt[(triton.cdiv(len(kl), 128),)](
        learning_rate, kl, len(kl), LOW=0.5 * threshold, HIGH=2.0 * threshold, LEAST=least, MOST=most, num_warps=1
    )


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


@jit
def _advantages(
    values, rewards, dones, time_outs, last_values, out, num_rows, num_steps, gamma, decay, BOOTSTRAP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = row < num_rows
    following = tl.load(last_values + row, mask=mask)
    running = tl.zeros((BLOCK,), dtype=tl.float32)
    at = row * num_steps + num_steps - 1
    for _ in range(0, num_steps):
        value, reward = tl.load(values + at, mask=mask), tl.load(rewards + at, mask=mask)
        if BOOTSTRAP:
            reward += gamma * value * tl.load(time_outs + at, mask=mask)
        going_on = 1.0 - tl.load(dones + at, mask=mask)
        running = reward + gamma * following * going_on - value + decay * going_on * running
        tl.store(out + at, running, mask=mask)
        following = value
        at -= 1


def advantages(
    values: Tensor, rewards: Tensor, dones: Tensor, time_outs: Tensor, last_values: Tensor, gamma: float, decay: float,
    bootstrap: bool,
) -> Tensor:  # fmt: skip
    """As ``ppo.generalized_advantages``, in one kernel; ``decay`` is gamma times tau, and tensors are contiguous."""
    out = torch.empty_like(values)
    rows, steps = last_values.numel(), values.shape[-1]
    _advantages[(triton.cdiv(rows, 128),)](
        values, rewards, dones, time_outs, last_values, out, rows, steps, gamma, decay, BOOTSTRAP=bootstrap, BLOCK=128
    )
    return out
