"""Storage of a rollout, its batch for learning, and its advantages."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from envcoder_bench.core.triton_import import jit, tl, triton
from envcoder_bench.trainers.ppo.backend import Backend
from envcoder_bench.trainers.ppo.group_numbers import is_swept, per_group
from envcoder_bench.trainers.ppo.hyperparameters import Hyperparameters
from envcoder_bench.trainers.ppo.normalizer import Factors

StepIndex = int | Tensor  # a step of a rollout; (1,) int64 on the device if a captured graph counts by itself


@dataclass
class Rollout:
    """T steps of K groups of n environments.

    ``obs`` ``(K, n, T, D)``; ``critic_obs`` ``(K, n, T, C)`` where critics have their own; ``actions`` and the policy's
    mean ``mus`` ``(K, n, T, A)``; ``values`` (denormalized), ``rewards``, ``dones`` and ``time_outs`` ``(K, n, T)``:
    step t has the reward rewards[t], and ended the episode where dones[t]; ``last_values`` ``(K, n)`` of the
    observations after the last step. Environments precede time, so that a group's samples are a view
    ``(K, n * T, ...)`` in rl_games' order.
    """

    obs: Tensor
    actions: Tensor
    mus: Tensor
    values: Tensor
    rewards: Tensor
    dones: Tensor
    time_outs: Tensor
    last_values: Tensor
    critic_obs: Tensor | None = None

    @classmethod
    def empty(
        cls,
        groups: int,
        num_envs: int,
        steps: int,
        obs_dim: int,
        action_dim: int,
        like: Tensor,
        answers: Tensor | None = None,
        critic_dim: int = 0,
    ) -> Rollout:
        """Allocate a rollout with the device and dtype of ``like``.

        ``answers`` ``(3, K, n, T)``, if given, is the storage of rewards, dones and time_outs.
        """
        answers = like.new_zeros(3, groups, num_envs, steps) if answers is None else answers
        obs, actions, mus = (like.new_zeros(groups, num_envs, steps, d) for d in (obs_dim, action_dim, action_dim))
        values, last_values = like.new_zeros(groups, num_envs, steps), like.new_zeros(groups, num_envs)
        rewards, dones, time_outs = answers
        critic_obs = like.new_zeros(groups, num_envs, steps, critic_dim) if critic_dim else None
        return cls(obs, actions, mus, values, rewards, dones, time_outs, last_values, critic_obs)


def put(all_steps: Tensor, t: StepIndex, step: Tensor) -> None:
    """Write one step ``(K, n, ...)`` into ``(K, n, T, ...)``."""
    if isinstance(t, int):
        all_steps[:, :, t] = step
    else:
        all_steps.index_copy_(2, t, step.unsqueeze(2))


def take(all_steps: Tensor, dim: int, t: StepIndex) -> Tensor:
    """Read one step along a dimension, which is dropped."""
    return all_steps.select(dim, t) if isinstance(t, int) else all_steps.index_select(dim, t).squeeze(dim)


@dataclass
class Batch:
    """A rollout prepared for learning: N = n * T samples per group, environment by environment.

    ``obs`` ``(K, N, D)``; ``critic_obs`` ``(K, N, C)`` or None; ``actions`` ``(K, N, A)``; ``neglogp`` and (normalized
    if enabled) ``values``, ``returns`` and ``advantages`` ``(K, N)``. ``mus`` ``(K, N, A)`` and ``sigmas``, a
    ``(K, 1, A)`` for each minibatch (sigma does not depend on the sample), are the policy's output from which the next
    divergence is measured.
    ``obs_factors`` and ``critic_factors`` normalize the observations of each minibatch of each mini epoch.
    """

    obs: Tensor
    actions: Tensor
    neglogp: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor
    mus: Tensor
    sigmas: list[Tensor]
    obs_factors: list[Factors] = field(default_factory=list)
    critic_obs: Tensor | None = None
    critic_factors: list[Factors] = field(default_factory=list)

    def rows(self, index: int) -> slice:
        """Return the samples of a minibatch, a contiguous block."""
        size = self.obs.shape[1] // len(self.sigmas)
        return slice(index * size, (index + 1) * size)


# generalized advantage estimation: torch's form loops over the steps, the kernel has a thread per environment


def generalized_advantages(backend: Backend, hp: Hyperparameters, rollout: Rollout, rewards: Tensor) -> Tensor:
    """Estimate generalized advantages (Schulman et al., 2016), not yet normalized; rl_games' ``discount_values``.

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
    gamma, decay = per_group(hp.gamma, values), per_group(hp.gamma * hp.tau, values)
    if hp.value_bootstrap:  # add the value of the rest of an episode that the time limit ended
        rewards = rewards + gamma * values * rollout.time_outs
    # residuals of all steps at once
    going_on = 1.0 - rollout.dones
    next_values = torch.cat([values[..., 1:], rollout.last_values.unsqueeze(-1)], dim=-1)
    delta = rewards + gamma * next_values * going_on - values
    # their discounted sums, from the last step back
    decays = decay * going_on
    advantages = torch.empty_like(delta)
    running = torch.zeros_like(rollout.last_values)
    for t in reversed(range(delta.shape[-1])):
        running = torch.addcmul(delta[..., t], decays[..., t], running)
        advantages[..., t] = running
    return advantages


def normalize_advantages(backend: Backend, advantages: Tensor) -> Tensor:
    """Center and scale ``(K, N)`` by each group's own mean and standard deviation."""
    mean, std = backend.mean(advantages, keepdim=True), backend.std(advantages, keepdim=True)
    return (advantages - mean) / (std + 1e-8)


# the same as one kernel


@jit
def _advantages(
    values, rewards, dones, time_outs, last_values, out, num_rows, num_envs, num_steps, gamma, decay,
    BOOTSTRAP: tl.constexpr, SWEPT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = row < num_rows
    if SWEPT:  # a program's rows may be of several groups
        gamma, decay = tl.load(gamma + row // num_envs, mask=mask), tl.load(decay + row // num_envs, mask=mask)
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
        values, rewards, rollout.dones, rollout.time_outs, last_values, out, rows, last_values.shape[1], steps,
        per_group(hp.gamma, values), per_group(hp.gamma * hp.tau, values), BOOTSTRAP=hp.value_bootstrap,
        SWEPT=is_swept(hp.gamma), BLOCK=128,
    )  # fmt: skip
    return out
