"""What the scene and the simulation of a framework offer to the blocks of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from envcoder_bench.sources.term_tasks.dialect import Dialect
    from envcoder_bench.sources.term_tasks.parts import Parts


class World(Protocol):
    """One scene in many environments.

    Attributes:
        dialect: of its framework.
        cfg: the task's registered config.
        group_size: environments of a group, which the task sets.
        scene: with ``sensors`` by name, whose ``data`` may be computed when they are read.
        steps: control steps so far, of all environments; ``clock`` has them as an int, or on a device as a tensor.
        reads: how often the framework's code has read ``steps``, or has run the simulation.
        parts: runs the parts of a step.
        obs_sets: the groups of observations that the ``actor``, and the ``critic``, read, side by side.
        reads_rewards, has_read_rewards: whether the task's own code reads ``env.reward_manager``; whether any code has.
    """

    dialect: Dialect
    cfg: Any
    scene: Any
    sim: Any
    group_size: int
    steps: int
    reads: int
    parts: Parts
    obs_sets: Mapping[str, tuple[str, ...]]
    reads_rewards: bool
    has_read_rewards: bool

    @property
    def clock(self) -> Any: ...

    def view(self, rows: slice, cfg: Any) -> Any:
        """Return some environments as the framework's terms see them, with ``num_envs``, ``step_dt`` and ``device``."""
        ...

    def part(self, block: Any, rows: slice) -> Any:
        """Return some environments of a block, with its managers as soon as it has them."""
        ...

    def held(self) -> dict[str, Any]:
        """Return the objects, besides those of blocks, that keep tensors between steps, by name."""
        ...

    def get_simulation(self) -> dict[str, Tensor]:
        """Return the state of the simulation."""
        ...

    def set_simulation(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``get_simulation`` returned, and compute what derives from it."""
        ...

    def count(self, steps: int) -> None:
        """Set the number of control steps so far."""
        ...

    def sense(self) -> None:
        """Let sensors measure the present state; ``sensed`` follows."""
        ...

    def sensed(self) -> None:
        """Let sensors compute their data from what ``sense`` has measured."""
        ...

    def capturing(self, name: str) -> None:
        """Prepare the capture of a part of a step."""
        ...

    def replayed(self, name: str) -> None:
        """Set on the host what a part has changed there when it was captured; called after it was run as a graph."""
        ...

    def forget(self) -> None:
        """Drop the data that sensors have computed."""
        ...
