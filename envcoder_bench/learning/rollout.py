"""What is remembered of a rollout, and how it is cut into minibatches."""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import List, Tuple

from torch import Tensor


@dataclass
class Rollout:
    """What K groups of n environments met in T steps.

    ``obs`` ``(K, n, T, D)``; ``actions`` and the policy's mean ``mus`` ``(K, n, T, A)``; ``values`` (denormalized),
    ``rewards``, ``dones`` and ``time_outs`` ``(K, n, T)``: step t earned rewards[t], and ended the episode where
    dones[t]; ``last_values`` ``(K, n)`` of the observations after the last step. Environments come before time, so a
    group's samples are a view ``(K, n * T, ...)`` in rl_games' order.
    """

    obs: Tensor
    actions: Tensor
    mus: Tensor
    values: Tensor
    rewards: Tensor
    dones: Tensor
    time_outs: Tensor
    last_values: Tensor

    @classmethod
    def empty(cls, groups: int, num_envs: int, steps: int, obs_dim: int, action_dim: int, like: Tensor) -> Rollout:
        """Allocate a rollout with the device and dtype of ``like``."""
        widths = {"obs": obs_dim, "actions": action_dim, "mus": action_dim}

        def zeros(name: str) -> Tensor:
            if name == "last_values":
                return like.new_zeros(groups, num_envs)
            return like.new_zeros([groups, num_envs, steps] + ([widths[name]] if name in widths else []))

        return cls(**{each.name: zeros(each.name) for each in fields(cls)})


@dataclass
class Batch:
    """A rollout made ready for learning: N = n * T samples per group, environment by environment.

    ``obs`` ``(K, N, D)``; ``actions`` ``(K, N, A)``; ``neglogp`` and, normalized where asked, ``values``, ``returns``
    and ``advantages`` ``(K, N)``. ``mus`` ``(K, N, A)`` and ``sigmas``, a ``(K, 1, A)`` for each minibatch (sigma does
    not depend on the sample), are the policy's last seen output, from which the next divergence is measured.
    ``obs_moments`` are the mean and variance ``(K, D)`` of each minibatch's observations, which every mini epoch adds
    to the normalizer again.
    """

    obs: Tensor
    actions: Tensor
    neglogp: Tensor
    values: Tensor
    returns: Tensor
    advantages: Tensor
    mus: Tensor
    sigmas: List[Tensor]
    obs_moments: List[Tuple[Tensor, Tensor]] = field(default_factory=list)

    def rows(self, index: int) -> slice:
        """Samples of one minibatch: a contiguous block."""
        size = self.obs.shape[1] // len(self.sigmas)
        return slice(index * size, (index + 1) * size)
