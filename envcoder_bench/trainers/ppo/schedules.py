"""The schedules of learning rates and of the entropy coefficient, for all groups at once."""

import math

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters

MIN_LEARNING_RATE, MAX_LEARNING_RATE = 1e-6, 1e-2  # rl_games' limits of every schedule
ROLLOUT_MIN_LEARNING_RATE = 1e-5  # rsl_rl's
MIN_ENTROPY_COEF = 1e-4


def update_learning_rates(backend: Backend, hp: Hyperparameters, rates: Tensor, kl: Tensor, epoch: int) -> None:
    """Change the learning rates ``(K,)`` float64 in place, see ``next_learning_rate``."""
    if backend.kernels and hp.lr_schedule == "adaptive":
        _adapt[(triton.cdiv(len(kl), 128),)](
            rates, kl, len(kl), LOW=0.5 * hp.kl_threshold, HIGH=2.0 * hp.kl_threshold, LEAST=_least(hp),
            MOST=MAX_LEARNING_RATE, ABOVE=_above(hp), num_warps=1,
        )  # fmt: skip
    else:
        rates.copy_(next_learning_rate(hp, rates, kl, epoch))


def next_learning_rate(hp: Hyperparameters, learning_rate: Tensor, kl: Tensor, epoch: int) -> Tensor:
    """Return the next learning rates ``(K,)`` from the groups' divergences ``kl`` ``(K,)`` and the epoch (from 1).

    rl_games' ``AdaptiveScheduler`` and ``LinearScheduler``; for ``schedule_type: rollout`` the limits are rsl_rl's.
    """
    if hp.lr_schedule == "adaptive":
        kl = kl.to(learning_rate.dtype)
        lower = (learning_rate / 1.5).clamp_(min=_least(hp))
        higher = (learning_rate * 1.5).clamp_(max=MAX_LEARNING_RATE)
        changed = torch.where(kl > 2.0 * hp.kl_threshold, lower, learning_rate)
        return torch.where((kl < 0.5 * hp.kl_threshold) & (kl > _above(hp)), higher, changed)
    if hp.lr_schedule == "linear":
        return torch.full_like(learning_rate, _interpolate(hp, MIN_LEARNING_RATE, hp.learning_rate, epoch))
    return learning_rate


def _least(hp: Hyperparameters) -> float:
    return ROLLOUT_MIN_LEARNING_RATE if hp.schedule_type == "rollout" else MIN_LEARNING_RATE


def _above(hp: Hyperparameters) -> float:
    """Return the divergence above which the rate may rise: as in rsl_rl not at 0, before the policy has changed."""
    return 0.0 if hp.schedule_type == "rollout" else -math.inf


def next_entropy_coef(hp: Hyperparameters, epoch: int) -> float:
    """Return the entropy coefficient of the schedule at an epoch (from 1)."""
    if hp.lr_schedule == "linear" and hp.schedule_entropy:
        return _interpolate(hp, MIN_ENTROPY_COEF, hp.entropy_coef, epoch)
    return hp.entropy_coef


def _interpolate(hp: Hyperparameters, end: float, start: float, epoch: int) -> float:
    steps = hp.linear_steps
    return end + (start - end) * (max(0, steps - epoch) / steps if steps else 1.0)


# the adaptive rates as one kernel


@jit
def _adapt(
    rate, kl, num_groups, LOW: tl.constexpr, HIGH: tl.constexpr, LEAST: tl.constexpr, MOST: tl.constexpr,
    ABOVE: tl.constexpr,
):  # fmt: skip
    k = tl.arange(0, 128) + tl.program_id(0) * 128
    mask = k < num_groups
    old, distance = tl.load(rate + k, mask=mask), tl.load(kl + k, mask=mask).to(tl.float64)
    lower, higher = old / 1.5, old * 1.5
    new = tl.where(distance > HIGH, tl.where(lower > LEAST, lower, LEAST), old)
    new = tl.where((distance < LOW) & (distance > ABOVE), tl.where(higher < MOST, higher, MOST), new)
    tl.store(rate + k, new, mask=mask)
