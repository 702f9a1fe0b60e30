"""What is known of a task of terms before a run builds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.fitness import Measure
from envcoder_bench.tasks.base import Field


@dataclass(frozen=True, kw_only=True)
class TermFacts(ABC):
    """A task, and what a small simulation shows of it.

    Attributes:
        dialect: of its framework.
        measure: its fitness.
        train: its settings of PPO, in the schema of rl_games.
        obs_sets: the groups of observations that the ``actor``, and the ``critic``, read, side by side.
        widths: columns of the buffers of observations by reader, and of reward ``terms``.
        own_widths: columns of the registered observations.
        reads_rewards: whether its code reads ``env.reward_manager``, so that candidates with other rewards share no
            block.
        fields: the keys of its state.
        notes: it in words, as ``Task`` has it.
    """

    dialect: Dialect
    measure: Measure
    train: Mapping[str, Any]
    obs_sets: Mapping[str, tuple[str, ...]]
    widths: Mapping[str, int] = field(default_factory=dict)
    own_widths: Mapping[str, int] = field(default_factory=dict)
    reads_rewards: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict)
    notes: str = ""

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's name, an identifier."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The value for ``--task``."""

    @property
    def actor(self) -> str:
        """The group of observations that has the terms outside of any group's dict."""
        return self.obs_sets["actor"][0]

    @abstractmethod
    def env_cfg(self) -> Any:
        """Return a new copy of the registered config."""

    def shared_by_groups(self, cfg: Any) -> tuple[str, str, str, str] | None:
        """Return section and name of what depends on other groups' environments, what it does, and the remedy."""
        return None
