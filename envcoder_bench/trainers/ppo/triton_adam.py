"""Adam and the adaptive learning rates of all groups as one Triton kernel each."""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton


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
    root_epsilon = (EPSILON * root).to(tl.float32)  # pyright: ignore[reportAttributeAccessIssue]
    tl.store(weights + at, p - step_size * m / (tl.sqrt(v) + root_epsilon), mask=mask)


def adam(
    params: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, norm: Tensor | None, learning_rate: Tensor,
    powers: Tensor, alive: Tensor | None, max_norm: float | None, weight_decay: float,
    constants: tuple[float, float, float],
) -> None:  # fmt: skip
    """Apply Adam's update to ``(K, P)`` tensors in one pass.

    Args:
        norm: ``(K,)``, the gradients' norms if they are clipped to ``max_norm``.
        learning_rate: ``(K,)`` float64.
        powers: ``(2,)`` float64, both betas to the power of the number of steps including this one.
        alive: ``(K,)`` bool, groups to update (None: all).
        constants: Adam's beta1, beta2 and epsilon.
    """
    groups, size = params.shape
    clipped = norm is not None and max_norm is not None
    _adam[(triton.cdiv(size, 1024), groups)](
        params, grad, exp_avg, exp_avg_sq, norm if clipped else params, learning_rate, powers,
        params if alive is None else alive.view(torch.uint8), size, max_norm if clipped else 0.0, weight_decay,
        BETA1=constants[0], BETA2=constants[1], EPSILON=constants[2], CLIPPED=clipped, MASKED=alive is not None,
        BLOCK=1024,
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
