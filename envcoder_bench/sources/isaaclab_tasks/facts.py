"""What is known of a task of Isaac Lab before a run builds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envcoder_bench.sources.isaaclab_tasks.source import Source, shared_by_groups
from envcoder_bench.sources.term_tasks.facts import TermFacts


@dataclass(frozen=True, kw_only=True)
class Facts(TermFacts):
    """A task in gymnasium's registry, and what a small simulation shows of it.

    Attributes:
        clip_actions: the limit of actions, of the runner's config.
    """

    source: Source
    clip_actions: float = float("inf")

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def address(self) -> str:
        return self.source.address

    def env_cfg(self) -> Any:
        return self.source.env_cfg()

    def shared_by_groups(self, cfg: Any) -> tuple[str, str, str, str] | None:
        return shared_by_groups(cfg)
