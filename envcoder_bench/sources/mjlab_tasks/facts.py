"""What is known of a task of mjlab before a run builds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from envcoder_bench.sources.mjlab_tasks.fitness import Measure
from envcoder_bench.sources.mjlab_tasks.source import Source
from envcoder_bench.tasks.base import Field


@dataclass(frozen=True)
class Facts:
    """A task in mjlab's registry, and what a small simulation shows of it.

    Attributes:
        source: the task in mjlab's registry.
        measure: the kind of fitness, see ``fitness.py``.
        train: its settings of PPO, in the schema of rl_games.
        obs_sets: the groups of observations that the actor, and the critic, read, side by side.
        widths: columns of the buffers of observations by group, and of reward terms.
        own_widths: columns of the registered observations.
        needs_warp: whether its code reads what MuJoCo on a CPU does not have.
        reads_rewards: whether it reads ``env.reward_manager``, so that candidates with other rewards share no block.
        fields: the keys of its state.
        notes: it in words, as ``Task`` has it.
    """

    source: Source
    measure: Measure
    train: Mapping[str, Any]
    obs_sets: Mapping[str, tuple[str, ...]]
    widths: Mapping[str, int]
    own_widths: Mapping[str, int] = field(default_factory=dict)
    needs_warp: bool = False
    reads_rewards: bool = False
    fields: Mapping[str, Field] = field(default_factory=dict)
    notes: str = ""
