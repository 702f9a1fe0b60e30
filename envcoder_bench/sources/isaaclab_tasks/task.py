"""A task of Isaac Lab: its construction and its simulation."""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from isaaclab.utils.buffers import CircularBuffer
from torch import Tensor

from envcoder_bench.sources.isaaclab_tasks.facts import Facts
from envcoder_bench.sources.isaaclab_tasks.keys import sources_of
from envcoder_bench.sources.isaaclab_tasks.robot import IsaacLabRobot
from envcoder_bench.sources.isaaclab_tasks.words import unmeasured_by
from envcoder_bench.sources.isaaclab_tasks.world import World
from envcoder_bench.sources.term_tasks.checkpoint import restore, saved
from envcoder_bench.sources.term_tasks.quiet import quiet
from envcoder_bench.sources.term_tasks.task import TermTask

if TYPE_CHECKING:
    from mujoco_batches.physics.live_tensors import PoseSource

REFUSALS = {
    "compute_torque": "actions go to Isaac Lab's action terms",
    "compute_dof_target": "actions go to Isaac Lab's action terms",
    "compute_initial_state": 'give events = {"reset_base": ...} instead, as in Isaac Lab',
    "compute_goal": 'give commands = {"base_velocity": ...} instead, as in Isaac Lab',
}


class ShiftedBuffer(CircularBuffer):
    """Isaac Lab's ring of frames, in which time is the order in memory: an append shifts it, instead of a pointer."""

    def append(self, data: Tensor) -> None:
        if self._buffer is None:
            self._buffer = data.expand(self.max_length, *data.shape).clone()
        self._pointer = self.max_length - 1
        frames = torch.cat((self._buffer[1:], data.unsqueeze(0)))
        first = (self._num_pushes == 0).view(-1, *[1] * (data.dim() - 1))  # fills the history of its environment
        self._buffer.copy_(torch.where(first, data, frames))
        self._num_pushes += 1


class IsaacLabTask(TermTask):
    """A task of Isaac Lab."""

    refusals: Mapping[str, str] = REFUSALS
    events_after_reset = True

    def __init__(self, facts: Facts, cfg: Mapping[str, Any], num_envs: int, device: str) -> None:
        self.clip_actions = facts.clip_actions
        super().__init__(facts, cfg, num_envs, device)

    def make_world(self, facts: Facts) -> World:
        return World(facts, self.num_envs, str(self.device))

    def robot(self) -> IsaacLabRobot:
        robot = IsaacLabRobot(self.world)
        self.erring = robot.erring
        return robot

    def unmeasured_by(self, term: Any) -> str:
        return unmeasured_by(self.world, term)

    def sources(self) -> dict[str, Any]:
        return sources_of(self.world)

    @property
    def bytes_per_env(self) -> int:
        of_state = sum(x.numel() * x.element_size() for x in self.state.values()) // self.num_envs
        return self.world.sim.running.engine.bytes_per_env + 2 * of_state

    def pose_source(self) -> PoseSource | None:
        source = getattr(self.world.sim.running.engine, "pose_source", None)
        return None if source is None else source()

    def rings(self) -> tuple[type, type]:
        return CircularBuffer, ShiftedBuffer

    def quiet(self) -> Any:
        return quiet()

    @functools.cached_property
    def _pristine(self) -> dict[str, Tensor]:
        return saved(self.world, [], {})

    def restore_model(self) -> None:
        self.world.sim.activate()
        restore(self.world, [], {}, self._pristine)

    def note_unstable(self) -> None:
        self.world.take_failures(self.unstable, self.contact_overflows)
