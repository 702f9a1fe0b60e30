"""What the scene and the simulation of a framework offer to the blocks of groups, and what frameworks share of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from envcoder_bench.sources.term_tasks.draws import Draws, TermStream, drawing
from envcoder_bench.sources.term_tasks.graphs.env_ids import EnvIds, FixedShapes
from envcoder_bench.sources.term_tasks.graphs.parts import Call, Parts, in_turn

if TYPE_CHECKING:
    from envcoder_bench.sources.term_tasks.dialect import Dialect

_ALONG_LEVELS = 0.6180339887498949  # lanes in turn are spread evenly over levels


class World(ABC):
    """One scene in many environments; a framework has the abstract methods.

    Attributes:
        num_envs, device, action_manager: of all groups; ``draws`` says in whose names its code draws.
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

    num_envs: int
    device: torch.device
    action_manager: Any
    draws: Draws
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
    _clock: Tensor | None

    @property
    def clock(self) -> Any:
        return self.steps if self._clock is None else self._clock

    @abstractmethod
    def view(self, rows: slice, cfg: Any) -> Any:
        """Return some environments as the framework's terms see them, with ``num_envs``, ``step_dt`` and ``device``."""

    @abstractmethod
    def part(self, block: Any, rows: slice) -> Any:
        """Return some environments of a block, with its managers as soon as it has them."""

    @abstractmethod
    def held(self) -> dict[str, Any]:
        """Return the objects, besides those of blocks, that keep tensors between steps, by name."""

    @abstractmethod
    def get_simulation(self) -> dict[str, Tensor]:
        """Return the state of the simulation."""

    @abstractmethod
    def set_simulation(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``get_simulation`` returned, and compute what derives from it."""

    def count(self, steps: int) -> None:
        """Set the number of control steps so far, which curricula read."""
        self.steps = steps
        if self._clock is not None:
            self._clock.fill_(steps)

    def judge(self, first: Callable[[], None], stages: Iterable[tuple[str, list[Call], Call]]) -> None:
        """Call ``first``, then judge the step by the last of each stage.

        Args:
            stages: in turn, the name of a part, the calls between the part before and this one, and its own; without
                calls in between, a stage is in the part of the stage before.
        """
        name, calls = "judge", [first]
        for following, between, call in stages:
            if between:
                self.parts(name, in_turn(calls))
                self.parts.between(in_turn(between))
                name, calls = following, []
            calls.append(call)
        self.parts(name, in_turn(calls))

    def reset_scene(self, mask: Tensor) -> None:
        """Reset the scene where ``mask`` is True."""
        with self.drawing("scene/reset"), FixedShapes(self.num_envs, "the scene's reset"):
            self.scene.reset(EnvIds.of(mask))

    def reset_actions(self, mask: Tensor) -> None:
        """Reset the actions where ``mask`` is True."""
        with self.drawing("actions/reset"), FixedShapes(self.num_envs, "the actions' reset"):
            self.action_manager.reset(EnvIds.of(mask))

    @contextmanager
    def drawing(self, name: str) -> Iterator[None]:
        """Let the code of actions and actuators inside the block draw in the name ``name``."""
        with TermStream(name, self.draws.seeds, self.draws.lanes, self.draws.step), drawing():
            yield

    @abstractmethod
    def sense(self) -> None:
        """Let sensors measure the present state; ``sensed`` follows."""

    @abstractmethod
    def sensed(self) -> None:
        """Let sensors compute their data from what ``sense`` has measured."""

    @abstractmethod
    def capturing(self, name: str) -> None:
        """Prepare the capture of a part of a step."""

    @abstractmethod
    def replayed(self, name: str) -> None:
        """Set on the host what a part has changed there when it was captured; called after it was run as a graph."""

    @abstractmethod
    def forget(self) -> None:
        """Drop the data that sensors have computed."""


def first_levels(rows: int, evaluates: bool, seeds: Tensor, lanes: Tensor, drawn_of: int) -> Tensor:
    """Return the level of a generated terrain on which each environment begins, ``(num_envs,)``.

    It is drawn of the first ``drawn_of``; where policies are evaluated, lanes are spread evenly over all ``rows``.
    """
    if evaluates:
        return ((0.5 + lanes * _ALONG_LEVELS) % 1.0 * rows).long()
    with TermStream("terrain", seeds, lanes, -1), drawing():
        return torch.randint(0, min(drawn_of, rows), (len(lanes),), device=lanes.device)
