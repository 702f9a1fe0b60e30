"""What a training loop asks of an environment, and what one step of it returns."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Sequence

from torch import Tensor


class EnvStep(NamedTuple):
    """What one control step of all environments brought.

    Attributes:
        obs: ``(num_envs, max(obs_dims))``; where an episode ended, the first observation of the next one.
        reward: ``(num_envs,)``.
        terminated: ``(num_envs,)`` bool, episodes that the task or the candidate ended.
        truncated: ``(num_envs,)`` bool, episodes that the time limit alone ended; never where ``terminated``.
        final_obs: as ``obs``, except where an episode ended: there it is of the episode's last state. None unless it
            was asked for.
    """

    obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Tensor | None = None

    @property
    def done(self) -> Tensor:
        """Episodes that ended, ``(num_envs,)`` bool."""
        return self.terminated | self.truncated


class Env(Protocol):
    """An environment of many groups, as a training loop sees it."""

    @property
    def alive(self) -> Sequence[bool]:
        """For each group, whether its candidate has not failed."""
        ...

    def reset(self) -> Tensor:
        """Begin an episode in every environment and return the first observations."""
        ...

    def step(self, actions: Tensor, final_obs: bool = False) -> EnvStep:
        """Advance one control step with ``actions`` ``(num_envs, max(action_dims))``."""
        ...
