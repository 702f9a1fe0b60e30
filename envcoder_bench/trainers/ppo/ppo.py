"""Advantages of a rollout and the schedules of PPO, for all groups at once."""

import torch
from torch import Tensor

from envcoder_bench.trainers.ppo import sums, triton_advantages, triton_kernels
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.rollout import Rollout

MIN_LEARNING_RATE, MAX_LEARNING_RATE = 1e-6, 1e-2  # rl_games' limits of every schedule
MIN_ENTROPY_COEF = 1e-4


def generalized_advantages(hp: Hyperparameters, rollout: Rollout, rewards: Tensor) -> Tensor:
    """Generalized advantage estimation (Schulman et al., 2016), not yet normalized.

    Args:
        hp: gamma, tau (the lambda of the paper), value_bootstrap.
        rollout: values, dones, time_outs and last_values are read.
        rewards: ``(K, n, T)`` after the reward shaper.

    Returns:
        ``(K, n, T)``.
    """
    values = rollout.values
    if triton_kernels.usable(values):
        return triton_advantages.advantages(
            values, rewards, rollout.dones, rollout.time_outs, rollout.last_values, hp.gamma, hp.gamma * hp.tau,
            hp.value_bootstrap,
        )  # fmt: skip
    if hp.value_bootstrap:  # add the value of the rest of an episode that the time limit ended
        rewards = rewards + hp.gamma * values * rollout.time_outs
    going_on = 1.0 - rollout.dones
    next_values = torch.cat([values[..., 1:], rollout.last_values.unsqueeze(-1)], dim=-1)
    delta = rewards + hp.gamma * next_values * going_on - values
    decay = hp.gamma * hp.tau * going_on
    advantages = torch.empty_like(delta)
    running = torch.zeros_like(rollout.last_values)
    for t in reversed(range(delta.shape[-1])):
        running = torch.addcmul(delta[..., t], decay[..., t], running)
        advantages[..., t] = running
    return advantages


def normalize_advantages(advantages: Tensor) -> Tensor:
    """Center and scale ``(K, N)`` by each group's own mean and standard deviation."""
    mean, std = sums.mean(advantages, keepdim=True), sums.std(advantages, keepdim=True)
    return (advantages - mean) / (std + 1e-8)


def next_learning_rate(hp: Hyperparameters, learning_rate: Tensor, kl: Tensor, epoch: int) -> Tensor:
    """Return the next learning rates ``(K,)`` from the groups' divergences ``kl`` ``(K,)`` and the epoch (from 1)."""
    if hp.lr_schedule == "adaptive":
        kl = kl.to(learning_rate.dtype)
        lower = (learning_rate / 1.5).clamp_(min=MIN_LEARNING_RATE)
        higher = (learning_rate * 1.5).clamp_(max=MAX_LEARNING_RATE)
        changed = torch.where(kl > 2.0 * hp.kl_threshold, lower, learning_rate)
        return torch.where(kl < 0.5 * hp.kl_threshold, higher, changed)
    if hp.lr_schedule == "linear":
        return torch.full_like(learning_rate, _interpolate(hp, MIN_LEARNING_RATE, hp.learning_rate, epoch))
    return learning_rate


def next_entropy_coef(hp: Hyperparameters, epoch: int) -> float:
    """Return the entropy coefficient of the schedule at an epoch (from 1)."""
    if hp.lr_schedule == "linear" and hp.schedule_entropy:
        return _interpolate(hp, MIN_ENTROPY_COEF, hp.entropy_coef, epoch)
    return hp.entropy_coef


def _interpolate(hp: Hyperparameters, end: float, start: float, epoch: int) -> float:
    steps = hp.linear_steps
    return end + (start - end) * (max(0, steps - epoch) / steps if steps else 1.0)
