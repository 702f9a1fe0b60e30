"""What is known of a task of mjlab before a run builds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envcoder_bench.sources.mjlab_tasks.source import Source, shared_by_groups
from envcoder_bench.sources.term_tasks.facts import TermFacts


@dataclass(frozen=True, kw_only=True)
class Facts(TermFacts):
    """A task in mjlab's registry, and what a small simulation shows of it.

    Attributes:
        source: the task in mjlab's registry.
        needs_warp: whether its code reads what MuJoCo on a CPU does not have.
    """

    source: Source
    needs_warp: bool = False

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
