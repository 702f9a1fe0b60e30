"""Storage of a rollout, and its batch for learning."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from envcoder_bench.trainers.ppo.normalizer import Factors

StepIndex = int | Tensor  # of a rollout; a tensor (1,) int64 on the device where a captured graph counts by itself


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
