"""The interface of environments for a training loop, and the result of a step."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor


class EnvStep(NamedTuple):
    """The result of a control step of all environments.

    Attributes:
        obs: ``(num_envs, max(obs_dims))``; where an episode ended, the first observation of the next one.
        reward: ``(num_envs,)``.
        terminated: ``(num_envs,)`` bool, episodes ended by the task or the candidate.
        truncated: ``(num_envs,)`` bool, episodes ended by the time limit only; False where ``terminated``.
        final_obs: as ``obs``, but where an episode ended, the observation of its last state. None unless requested.
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
    def critic_obs(self) -> Tensor | None:
        """The critics' observations of the present state, ``(num_envs, max(critic_dims))``; None without critics' own.

        The next step may overwrite them.
        """
        ...

    @property
    def alive(self) -> Sequence[bool]:
        """Whether each group's candidate has not failed."""
        ...

    def reset(self) -> Tensor:
        """Begin an episode in every environment and return the first observations."""
        ...

    def step(self, actions: Tensor, final_obs: bool = False) -> EnvStep:
        """Advance one control step with ``actions`` ``(num_envs, max(action_dims))``."""
        ...
