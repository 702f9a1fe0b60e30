"""An environment whose robots meet disturbances, the same in each group.

An environment's lane says which draw of the grid it meets: the model differs from the start, actions come late, forces
push and tilt, and observations see noise. Random numbers depend on seed, lane and step. So a group's numbers are the
same alone and among others, bitwise on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.results.stress_grid import StressGrid
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.sim.base import Robot, Variation
from envcoder_bench.tasks.base import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAVITY = 9.81  # m/s^2
# keys of the state that sensors measure: their quantity in the grid, and the columns
_MEASURED = (
    ("dof_pos", "dof_pos", slice(None)),
    ("dof_vel", "dof_vel", slice(None)),
    ("root_states", "linear_velocity", slice(7, 10)),
    ("root_states", "angular_velocity", slice(10, 13)),
    ("measured_heights", "measured_heights", slice(None)),
)


def robot_of(task: Task) -> Robot:
    """Return a task's robot. Raises UserError if the task does not give access to it."""
    robot = task.robot()
    if robot is None:
        raise UserError(f"{task.name} does not give access to its robot, so that it has no stress test")
    return robot


class DisturbedEnv(GroupedVecTask):
    """Groups of environments of which each plays one of the grid's ``(1 + draws) * episodes`` episodes.

    Args:
        robot: that of the task.
        grid: the draws and the episodes of each.
        lanes: ``(num_envs,)`` numbers of the episodes, those of the nominal draw first; None: each group plays all.

    Attributes:
        lane: ``(num_envs,)`` the numbers of the episodes.
        notes: lines on what this task does not notice.
    """

    def __init__(
        self,
        task: Task,
        robot: Robot,
        layout: GroupLayout,
        shapings: Sequence[Shaping],
        seed: int,
        grid: StressGrid,
        lanes: Tensor | None = None,
    ) -> None:
        self.robot, self.grid, self.episode_seed, self._first_step = robot, grid, seed, 0
        columns = {axis.name: _per_lane(grid.column(axis.name), grid.episodes) for axis in grid.axes}
        self._every_lane, self._has_all = torch.arange(len(columns["noise"])), lanes is None
        self._lanes = self._every_lane.repeat(layout.num_groups) if lanes is None else lanes
        by_env = {name: x[self._lanes] for name, x in columns.items()}
        super().__init__(task, layout, shapings, [seed] * layout.num_groups)
        robot.vary(Variation(**{name: by_env[name] for name in Variation.__dataclass_fields__}))
        self._prepare_forces(by_env)
        # actions come late by whole control steps
        late = torch.floor(by_env["delay"] / (1000.0 * task.dt) + 0.5).to(torch.int64)
        self._late = late.to(self.device)
        self._past = torch.zeros(1 + int(late.max()), self.num_envs, self.actions.shape[1], device=self.device)
        self._applied = torch.zeros_like(self.actions)
        # noise of a lane is the same in all groups
        self._noise = columns["noise"].float().unsqueeze(1).to(self.device)
        self._drawn_lanes, self.lane = self._every_lane.to(self.device), self._lanes.to(self.device)
        self._noisy = bool(self._noise.any())
        self.notes = self._unseen(shapings)
        self.strength = by_env["strength"].float().to(self.device)

    def lanes(self) -> Tensor:
        return self._lanes % self.grid.episodes  # the k-th episodes of all draws draw alike

    def _unseen(self, shapings: Sequence[Shaping]) -> list[str]:
        """Return lines on disturbances that this task or these candidates do not notice."""
        notes = list(self.robot.notes)
        if not self._sees_slope:
            notes.append("slope: orientations are observed relative to the ground")
        if all(shaping.effort for shaping in shapings):
            notes.append("gains: candidates command efforts, so that there are no drives whose gains differ")
        if not self.robot.floating:
            base = self.robot.body_names[self.robot.base]
            notes.append(f"mass, com, push: the base is fixed, so that they are of the heaviest body, {base}")
        return notes

    def _prepare_forces(self, by_env: dict[str, Tensor]) -> None:
        robot, device = self.robot, self.device
        masses = robot.body_masses.repeat(self.num_envs, 1).double()
        masses[:, robot.base] *= by_env["mass"]
        # a slope is gravity that is turned: the ground's frame is the world's
        sine, cosine = torch.sin(by_env["slope"]), torch.cos(by_env["slope"])
        turned = torch.stack([-sine, torch.zeros_like(sine), 1.0 - cosine], dim=1) * GRAVITY
        self._weight = (masses.unsqueeze(2) * turned.unsqueeze(1)).float().to(device)
        gravity = torch.stack([-sine, torch.zeros_like(sine), -cosine], dim=1).float().to(device)
        self._sees_slope = robot.tilt(gravity)
        if "gravity_vec" in self.state:
            self.state["gravity_vec"].copy_(gravity)
            self._sees_slope = True
        every, lasts = self.grid.push
        steps = max(1, round(lasts / self.task.dt))
        self._push_steps, self._push_every = steps, max(steps, round(every / self.task.dt))
        moving = masses.sum(dim=1) if robot.floating else masses[:, robot.base]
        self._impulse = (moving * by_env["push"] / (steps * self.task.dt)).float().to(device)
        self._pushed = bool(self._impulse.any())
        self._forced = self._pushed or bool(by_env["slope"].any())

    # a control step

    def advance(self, actions: Tensor, mask: Tensor | None = None) -> None:
        if self._forced:
            self._apply_forces()
        self._past = torch.cat([actions.unsqueeze(0), self._past[:-1]])
        late = self._past.gather(0, self._late.view(1, -1, 1).expand(1, -1, actions.shape[1]))[0]
        # what a policy sees as its last action is what it has asked for
        limit = self.task.clip_actions
        asked = actions.clamp(-limit, limit) * self._action_mask
        self._measure(self.step_count + 1, asked)
        self.robot.show_actions(self._applied)  # rewards compare the actions that are applied
        super().advance(late, mask)
        self._applied.copy_(self.actions)
        self.actions.copy_(asked)
        self.robot.show_actions(asked)

    def _apply_forces(self) -> None:
        """Apply the slope's forces, and in some steps a push in a horizontal direction on the base."""
        forces = self._weight.clone()
        number, step = divmod(self.step_count - self._first_step, self._push_every)
        first = self._push_every // 2
        if self._pushed and first <= step < first + self._push_steps:
            drawn = noise.uniform(self.episode_seed, number, Purpose.STRESS, self._every_lane, 1)[:, 0]
            angles = (2.0 * math.pi * drawn.double()).numpy()
            along = torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)], axis=1)).float()
            along = along[self._lanes].to(self.device)
            forces[:, self.robot.base, :2] += self._impulse.unsqueeze(1) * along
        self.robot.apply_forces(forces)

    def observe(self, mask: Tensor | None = None) -> Tensor:
        with self._measured():
            return super().observe(mask)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Add noise to the quantities of the state that sensors measure, and remove it afterwards."""
        if not self._noisy or self.robot.sensors:  # a robot with sensors measures by itself
            yield
            return
        keys = [key for key in dict.fromkeys(key for key, _, _ in _MEASURED) if key in self.state]
        before = {key: self.state[key].clone() for key in keys}
        sizes = {key: self.state[key].shape[1] for key in keys}
        by_key = self._errors(sizes, self.step_count)
        for key, quantity, columns in _MEASURED:
            if key in by_key:
                self.state[key][:, columns] += self.grid.sensor_noise[quantity] * by_key[key][:, columns]
        if "root_states" in by_key:
            small = self.grid.sensor_noise["orientation"] * by_key["root_states"][:, 3:6]
            self.state["root_states"][:, 3:7] = noise.turned(self.state["root_states"][:, 3:7], small)
        try:
            yield
        finally:
            for key, x in before.items():
                self.state[key].copy_(x)

    def _errors(self, sizes: Mapping[str, int], step: int) -> dict[str, Tensor]:
        """Draw errors ``(num_envs, columns)`` of a step between -1 and 1 times the noise, by name."""
        counter = (self.episode_seed, step, Purpose.STRESS, self._drawn_lanes)
        drawn = noise.uniform(*counter, sum(sizes.values()), self.device)
        errors = ((2.0 * drawn - 1.0) * self._noise)[self.lane]
        return dict(zip(sizes, errors.split([*sizes.values()], dim=1)))

    def begin_all(self, step_count: int) -> Tensor:
        self._first_step = step_count
        self._measure(step_count, torch.zeros_like(self.actions))
        return super().begin_all(step_count)

    def _measure(self, step: int, actions: Tensor) -> None:
        """Let the robot's sensors measure the state at the beginning of a step."""
        sensors, size = self.robot.sensors, self.grid.sensor_noise
        if sensors:
            drawn = self._errors(sensors, step) if self._noisy else {}
            self.robot.measure({name: size[name] * x for name, x in drawn.items()}, actions)

    def starts(self, mask: Tensor, drawn: dict[str, Tensor]) -> dict[str, Tensor]:
        """Let the episodes of all draws begin as those of the nominal draw, so that the draws alone differ."""
        if self.step_count != self._first_step or not self._has_all:
            return drawn
        shape = (self.layout.num_groups, -1, self.grid.episodes)
        split = {key: x.view(*shape, *x.shape[1:]) for key, x in drawn.items()}
        return {key: x[:, :1].expand_as(x).reshape(drawn[key].shape) for key, x in split.items()}

    def take_over(self, other: DisturbedEnv, groups: Sequence[int], rows: Tensor) -> None:
        """Go on where ``rows`` ``(num_envs,)`` of a larger environment are, which are of its ``groups``.

        Raises:
            ValueError: the task's state does not say which part belongs to an environment.
        """
        # buffers that appear with the first observation and step
        self.begin_all(other._first_step)
        self.advance(self.actions)
        sizes = {
            (other.num_envs, self.num_envs): rows.cpu(),
            (other.layout.num_groups, self.layout.num_groups): torch.tensor(groups),
        }
        self.task.set_state(_selected(other.task.get_state(), self.task.get_state(), sizes))
        self.step_count = other.step_count
        self.progress_buf.copy_(other.progress_buf[rows])
        width = self.actions.shape[1]
        for name in ("actions", "_applied"):
            getattr(self, name).copy_(getattr(other, name)[rows, :width])
        self._past.copy_(other._past[: len(self._past), rows, :width])

    def begin_episodes(self, mask: Tensor) -> None:
        self._past.masked_fill_(mask.view(1, -1, 1), 0.0)
        self._applied.masked_fill_(mask.unsqueeze(1), 0.0)
        super().begin_episodes(mask)


def _selected(
    state: Mapping[str, Tensor], like: Mapping[str, Tensor], sizes: Mapping[tuple[int, int], Tensor]
) -> dict[str, Tensor]:
    """Return a state with the shapes of ``like``: of each size that differs, the entries that ``sizes`` names."""
    chosen = {}
    for name, x in state.items():
        shape = like[name].shape if name in like else torch.Size()
        changed = {dim: pair for dim, pair in enumerate(zip(x.shape, shape)) if pair[0] != pair[1]}
        if len(shape) != x.dim() or not sizes.keys() >= {*changed.values()}:
            raise ValueError(f"the state's {name} is {tuple(x.shape)}, and {tuple(shape)} in a smaller environment")
        for dim, pair in changed.items():
            x = x.index_select(dim, sizes[pair])
        chosen[name] = x
    return chosen


def _per_lane(column: np.ndarray, episodes: int) -> Tensor:
    return torch.from_numpy(column).double().repeat_interleave(episodes)
