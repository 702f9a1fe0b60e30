"""The interface of trainers, and the training loop."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.profiling import span
from envcoder_bench.env.base import Env, EnvStep

Params = Mapping[str, Any]
# widths of a group's observation and action, and of its critic's own observation, if there is one
Widths = tuple[int, ...]
MemoryEstimate = Callable[[Sequence[Widths]], int]  # a function of the groups' widths that returns bytes
Stats = Mapping[str, Tensor]  # tensors (num_groups,) by name, NaN for groups that have failed


def widest(groups: Iterable[Sequence[int]]) -> Widths:
    """Return the greatest widths of groups, three numbers if any critic has its own observations."""
    return tuple(map(max, itertools.zip_longest(*groups, fillvalue=0)))


def padded_widths(obs_dim: int, action_dim: int, *critic_dim: int) -> Widths:
    """Return the widths to which a deterministic run pads a group; they do not depend on other groups."""
    return tuple(
        -(-dim // multiple) * multiple for dim, multiple in zip((obs_dim, action_dim, *critic_dim), (32, 8, 32))
    )


class Trainer(ABC):
    """Learns one policy for each group of an environment; groups do not affect each other.

    Observations ``(num_envs, max(obs_dims))`` and actions ``(num_envs, max(action_dims))`` are padded with zeros to the
    widest group. On CUDA ``act``, ``record`` and ``learn`` must not wait for the device.

    A trainer with critic observations (``critic_refusal``) gets, if groups have them, their widths as one more argument
    ``critic_dims``, 0 for the other groups, and ``(num_envs, max(critic_dims))`` tensors as a second argument of
    ``act`` and ``learn``. The policy must not depend on them. A trainer with ``group_numbers`` gets the values of
    groups that have their own as an argument ``numbers``, one mapping per group.

    Args:
        layout, obs_dims, action_dims, seeds: the groups and their widths and seeds.
        params: the ``params`` of an rl_games YAML, whose ``algo.name`` names the trainer.
        device: the device of the environment and the policies.
    """

    horizon: int  # control steps per iteration
    wants_final_obs: bool = False  # whether ``record`` needs ``EnvStep.final_obs``
    sections: Sequence[str] = ()  # keys of ``params`` besides config that must hold keys
    deterministic: bool = False  # whether, in deterministic runs on CUDA, a group's bits do not depend on other groups

    @abstractmethod
    def __init__(
        self, layout: GroupLayout, obs_dims: Sequence[int], action_dims: Sequence[int], seeds: Sequence[int],
        params: Params, device: torch.device,
    ) -> None: ...  # fmt: skip

    @classmethod
    def keys(cls) -> Sequence[str]:
        """Return the dotted keys of ``params`` that have an effect; they can be set without being in cfg/train."""
        return ()

    @classmethod
    @abstractmethod
    def check(cls, params: Params, num_envs: int) -> None:
        """Raise ValueError, naming the key, if ``params`` is not valid for groups of ``num_envs`` environments."""

    @classmethod
    @abstractmethod
    def memory(cls, params: Params, num_envs: int, num_seeds: int, device: torch.device) -> MemoryEstimate:
        """Return a function that estimates the memory of groups by their widths, before anything is allocated."""

    @classmethod
    def critic_refusal(cls, params: Params) -> str | None:
        """Return why groups cannot have critic observations with ``params``, and the remedy; None if they can."""
        return f"the trainer {cls.__name__} has no critic observations; use --trainer ppo, or leave the function out"

    @classmethod
    def group_numbers(cls, params: Params) -> Mapping[str, float | str]:
        """Return the numbers that may differ between groups, by their dotted keys in ``params``.

        A value is that of ``params``, or a text that says on which condition the number has an effect.
        """
        return {}

    @classmethod
    def depends_on_length(cls, params: Params) -> bool:
        """Return whether the length of a training changes its first iterations, as with a rate that falls to 0.

        If not, ``--extend`` continues from the state at the end.
        """
        return True

    @classmethod
    def remark(cls, params: Params, env_steps: float) -> str:
        """Return a line for the run's log on what limits the policies; empty without a limit.

        Args:
            params: the trainer's, of the config.
            env_steps: of one policy, in the whole run.
        """
        return ""

    @abstractmethod
    def set_alive(self, alive: Sequence[bool]) -> None:
        """Set which groups continue; the actions of the others are 0, and they are not trained."""

    @abstractmethod
    def act(self, obs: Tensor) -> Tensor:
        """Sample actions for exploration; the next call may overwrite the result."""

    @abstractmethod
    def record(self, step: EnvStep) -> None:
        """Record the result of the actions of the last ``act``."""

    @abstractmethod
    def learn(self, last_obs: Tensor) -> Stats:
        """Learn from the ``horizon`` recorded steps, which ended at ``last_obs``."""

    @abstractmethod
    def policy(self, layout: GroupLayout) -> Callable[[Tensor], Tensor]:
        """Return the present policies, deterministic, for any number of environments of the same groups.

        The next call of the policy may overwrite its result.
        """

    @abstractmethod
    def export(self, group: int) -> dict[str, Any]:
        """Return a group's policy in the format that rl_games' player loads, to be saved with ``torch.save``."""

    @classmethod
    def load_policy(cls, params: Params, exported: Mapping[str, Any]) -> torch.nn.Module:
        """Return a deterministic policy, ``(n, obs_dim)`` to ``(n, action_dim)``, from a result of ``export``.

        Raises:
            ValueError: this trainer cannot load policies, or ``exported`` does not fit ``params``.
        """
        raise ValueError(f"policies of the trainer {cls.__name__} cannot be loaded: it does not define load_policy")

    @abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Return the state between two iterations that ``set_state`` needs, as CPU tensors and plain Python data."""

    @abstractmethod
    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of ``get_state``. Raises ValueError if it belongs to other groups."""

    # a race goes on with some of the groups; it needs these two methods

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a state for each group from the result of ``get_state``, independent of the other groups' widths."""
        raise NotImplementedError(f"{type(self).__name__} cannot split its state")

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state that ``set_state`` restores from the parts of this trainer's groups, in their order.

        Raises:
            ValueError: the groups are not at the same iteration.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot join states")


def train_iteration(trainer: Trainer, env: Env, obs: Tensor) -> tuple[Tensor, Stats]:
    """Run one rollout from ``obs`` and learn from it; return the last observations and statistics."""

    def observations() -> tuple[Tensor, ...]:
        return (obs,) if env.critic_obs is None else (obs, env.critic_obs)

    for _ in range(trainer.horizon):
        trainer.set_alive(env.alive)
        with span("policy"):
            actions = trainer.act(*observations())
        step = env.step(actions, trainer.wants_final_obs)
        trainer.record(step)
        obs = step.obs
    trainer.set_alive(env.alive)  # a group that failed on the last step does not learn from it
    with span("update"):
        return obs, trainer.learn(*observations())
