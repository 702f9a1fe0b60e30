"""The contract of a trainer, and the one loop that trains with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Mapping, Sequence, Tuple

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.profiling import span
from envcoder_bench.env.base import Env, EnvStep

Params = Mapping[str, Any]
Widths = Tuple[int, int]  # of a group's observation and action
MemoryEstimate = Callable[[Sequence[Widths]], int]  # from the widths of groups to bytes
Stats = Mapping[str, Tensor]  # by name: (num_groups,), NaN for groups that have failed


class Trainer(ABC):
    """Learns one policy for each group of an environment; nothing flows between groups.

    Observations ``(num_envs, max(obs_dims))`` and actions ``(num_envs, max(action_dims))`` are padded with zeros to the
    widest group. On CUDA ``act``, ``record`` and ``learn`` must not wait for the device.

    Args:
        layout, obs_dims, action_dims, seeds: of the groups.
        params: the ``params`` of an rl_games YAML, whose ``algo.name`` names the trainer.
        device: of the environment and of the policies.
    """

    horizon: int  # control steps of one iteration
    wants_final_obs: bool = False  # whether ``record`` needs ``EnvStep.final_obs``

    @abstractmethod
    def __init__(
        self, layout: GroupLayout, obs_dims: Sequence[int], action_dims: Sequence[int], seeds: Sequence[int],
        params: Params, device: torch.device,
    ) -> None: ...  # fmt: skip

    @classmethod
    @abstractmethod
    def check(cls, params: Params, num_envs: int) -> None:
        """Raise ValueError, naming the key, if groups of ``num_envs`` environments cannot be trained by ``params``."""

    @classmethod
    @abstractmethod
    def memory(cls, params: Params, num_envs: int, num_seeds: int, device: torch.device) -> MemoryEstimate:
        """Estimate, before anything is allocated, what groups of any widths take together."""

    @abstractmethod
    def set_alive(self, alive: Sequence[bool]) -> None:
        """Say which groups go on; the others' actions are 0, and they learn nothing."""

    @abstractmethod
    def act(self, obs: Tensor) -> Tensor:
        """Choose the actions to explore with; the next call may overwrite them."""

    @abstractmethod
    def record(self, step: EnvStep) -> None:
        """Take in what the actions of the last ``act`` brought."""

    @abstractmethod
    def learn(self, last_obs: Tensor) -> Stats:
        """Learn from the ``horizon`` steps recorded, which ended at ``last_obs``."""

    @abstractmethod
    def policy(self, layout: GroupLayout) -> Callable[[Tensor], Tensor]:
        """The policies as they are, deterministic, for any number of environments of the same groups."""

    @abstractmethod
    def export(self, group: int) -> dict[str, Any]:
        """One group's policy as a checkpoint that rl_games' own player loads (``torch.save`` it)."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that going on between two iterations needs, as CPU tensors and plain Python data."""

    @abstractmethod
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what ``state`` returned. Raises ValueError if it is of other groups."""


def train_iteration(trainer: Trainer, env: Env, obs: Tensor) -> tuple[Tensor, Stats]:
    """Play one rollout from ``obs`` on and learn from it; returns the observations to go on from, and statistics."""
    for _ in range(trainer.horizon):
        trainer.set_alive(env.alive)
        with span("policy"):
            actions = trainer.act(obs)
        step = env.step(actions, trainer.wants_final_obs)
        trainer.record(step)
        obs = step.obs
    trainer.set_alive(env.alive)  # a group that failed on the last step does not learn from it
    with span("update"):
        return obs, trainer.learn(obs)
