"""Generalized advantage estimation for all groups, and the normalization of advantages.

Torch's form loops over the steps of a rollout; the kernel has a thread for each environment.
"""

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.rollout import Rollout


def generalized_advantages(backend: Backend, hp: Hyperparameters, rollout: Rollout, rewards: Tensor) -> Tensor:
    """Generalized advantage estimation (Schulman et al., 2016), not yet normalized; rl_games' ``discount_values``.

    With V' the next step's value and d its end: delta = r + gamma (1 - d) V' - V; A = delta + gamma tau (1 - d) A'.

    Args:
        hp: gamma, tau (the lambda of the paper), value_bootstrap.
        rollout: values, dones, time_outs and last_values are read.
        rewards: ``(K, n, T)`` after the reward shaper.

    Returns:
        ``(K, n, T)``.
    """
    values = rollout.values
    if backend.kernels:
        return _advantages_in_kernel(hp, rollout, rewards)
    if hp.value_bootstrap:  # add the value of the rest of an episode that the time limit ended
        rewards = rewards + hp.gamma * values * rollout.time_outs
    # residuals of all steps at once
    going_on = 1.0 - rollout.dones
    next_values = torch.cat([values[..., 1:], rollout.last_values.unsqueeze(-1)], dim=-1)
    delta = rewards + hp.gamma * next_values * going_on - values
    # their discounted sums, from the last step back
    decay = hp.gamma * hp.tau * going_on
    advantages = torch.empty_like(delta)
    running = torch.zeros_like(rollout.last_values)
    for t in reversed(range(delta.shape[-1])):
        running = torch.addcmul(delta[..., t], decay[..., t], running)
        advantages[..., t] = running
    return advantages


def normalize_advantages(backend: Backend, advantages: Tensor) -> Tensor:
    """Center and scale ``(K, N)`` by each group's own mean and standard deviation."""
    mean, std = backend.mean(advantages, keepdim=True), backend.std(advantages, keepdim=True)
    return (advantages - mean) / (std + 1e-8)


# the same as one kernel


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


def _advantages_in_kernel(hp: Hyperparameters, rollout: Rollout, rewards: Tensor) -> Tensor:
    values, last_values = rollout.values, rollout.last_values
    out = torch.empty_like(values)
    rows, steps = last_values.numel(), values.shape[-1]
    _advantages[(triton.cdiv(rows, 128),)](
        values, rewards, rollout.dones, rollout.time_outs, last_values, out, rows, steps, hp.gamma, hp.gamma * hp.tau,
        BOOTSTRAP=hp.value_bootstrap, BLOCK=128,
    )  # fmt: skip
    return out
