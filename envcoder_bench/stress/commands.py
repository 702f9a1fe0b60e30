"""How policies follow commands of velocity: gain, dead zone, drift at zero, and overshoot, for each axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.results.stress import CommandRow
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.groups import Group
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.sim.base import Robot
from envcoder_bench.stress.disturbed_env import robot_of
from envcoder_bench.tasks.base import Task
from envcoder_bench.torch_utils import quat_rotate_inverse

AXES = {"x": "command_x_range", "y": "command_y_range", "yaw": "command_yaw_range"}  # and the constants with ranges
LEVELS = (-1.0, -0.5, -0.25, -0.1, 0.1, 0.25, 0.5, 1.0)  # of the end of the range
STILL = 4  # environments with the command zero
LANES = STILL + len(LEVELS) * len(AXES)
SECONDS, SMOOTHED = 5.0, 0.2
LEAST_GAIN = 0.1  # with less a policy does not respond


def command_axes(task: Task) -> dict[str, float]:
    """Return the axes of the task's commands with the ends of their ranges; empty without commands.

    With four numbers the task sets the third, the yaw rate, from a heading.
    """
    if task.velocity_ranges():
        return dict(task.velocity_ranges())
    if "commands" not in task.goal_keys or any(name not in task.constants for name in AXES.values()):
        return {}
    names = [*AXES][: 3 if task.state["commands"].shape[1] == 3 else 2]
    return {name: float(task.constants[AXES[name]].abs().max()) for name in names}


def _commands(axes: dict[str, float], width: int) -> Tensor:
    """Return the commands of a policy's environments: ``(LANES, width)``."""
    rows = torch.zeros(LANES, width)
    for axis, end in axes.items():
        rows[_lanes(axis), [*AXES].index(axis)] = end * torch.tensor(LEVELS)
    return rows


def _lanes(axis: str) -> slice:
    """Return the lanes with commands along an axis; those of axes that a task does not have stand still."""
    first = STILL + [*AXES].index(axis) * len(LEVELS)
    return slice(first, first + len(LEVELS))


class _CommandedEnv(GroupedVecTask):
    """Every group has the same start and a command for each lane."""

    def __init__(
        self, task: Task, layout: GroupLayout, shapings: Sequence[Shaping], seed: int, commands: Tensor
    ) -> None:
        super().__init__(task, layout, shapings, [seed] * layout.num_groups)
        self._asked = commands.repeat(layout.num_groups, 1).to(self.device)
        task.command(self._asked)

    def lanes(self) -> Tensor:
        return torch.zeros(self.layout.num_envs, dtype=torch.int64)  # all draw alike

    def starts(self, mask: Tensor, drawn: dict[str, Tensor]) -> dict[str, Tensor]:
        first = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        return {key: self._asked if key == "commands" else x[first] for key, x in drawn.items()}


class _Velocities:
    """A recorder of the base's velocity forward, to the left and of its yaw rate, in its frame."""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self.steps: list[Tensor] = []

    def step(self, t: int, active: Tensor, ended: Tensor) -> None:
        root = self._robot.root_states
        linear = quat_rotate_inverse(root[:, 3:7], root[:, 7:10])
        angular = quat_rotate_inverse(root[:, 3:7], root[:, 10:13])
        velocity = torch.cat([linear[:, :2], angular[:, 2:]], dim=1)
        self.steps.append(torch.where((active & ~ended).unsqueeze(1), velocity, torch.nan))


def probe_commands(
    spec: RunSpec, groups: Sequence[Group], act: Callable[[GroupedVecTask], Callable[[Tensor], Tensor]]
) -> tuple[list[CommandRow], str]:
    """Return a row for each group and axis; if the task does not have such commands, none, and the reason.

    Args:
        act: return the policies of all groups for an environment.
    """
    layout = GroupLayout(len(groups), LANES)
    task = build_task(spec, layout.num_envs)
    axes = command_axes(task)
    if not axes:
        return [], "the task does not have commands of velocity"
    commands = _commands(axes, task.state["commands"].shape[1] if "commands" in task.state else 3)
    shapings = [group.evaluation for group in groups]
    robot = robot_of(task)
    env = _CommandedEnv(task, layout, shapings, spec.config.seed, commands)
    velocities = _Velocities(robot)
    steps = min(env.full_episode, round(SECONDS / env.task.dt))
    with torch.no_grad():
        run_episodes(env, act(env), 1, EVALUATION_STEP, steps=steps, recorder=velocities)
    env.dispatch.poll()
    seen = torch.stack(velocities.steps, dim=1).cpu().numpy().astype(np.float64)
    missing = steps - seen.shape[1]  # all episodes have ended
    seen = np.pad(seen, ((0, 0), (0, missing), (0, 0)), constant_values=np.nan)
    seen = seen.reshape(layout.num_groups, LANES, steps, 3)
    width = max(1, round(SMOOTHED / env.task.dt))
    rows = []
    for g, group in enumerate(groups):
        if g not in env.failures:
            rows += responses(group.name, group.seed, seen[g], axes, width)
    return rows, ""


def responses(name: str, seed: int, seen: np.ndarray, axes: dict[str, float], width: int) -> list[CommandRow]:
    """Return a policy's rows from its velocities ``(lanes, steps, 3)``; lanes that ended early are NaN at the end.

    Args:
        axes: the ends of the commands' ranges.
        width: control steps over which velocities are smoothed to see an overshoot.
    """
    rows = []
    late = seen[:, seen.shape[1] // 2 :].mean(axis=1)  # NaN where the episode has ended
    for axis, end in axes.items():
        lanes, column = _lanes(axis), [*AXES].index(axis)
        asked, got, still = end * np.array(LEVELS), late[lanes, column], np.abs(late[:STILL, column])
        rows.append(
            CommandRow(
                name,
                seed,
                axis,
                gain=_gain(asked, got),
                dead_zone=_dead_zone(asked, got),
                drift=float(np.nanmean(still)) if np.isfinite(still).any() else np.nan,
                overshoot=_overshoot(seen[lanes, :, column], asked, got, width),
                ended=float(np.isnan(got).mean()),
            )
        )
    return rows


def _gain(asked: np.ndarray, got: np.ndarray) -> float:
    """Return the slope of the response over the larger commands."""
    outer = (np.abs(asked) >= 0.5 * np.abs(asked).max()) & np.isfinite(got)
    return float((asked * got)[outer].sum() / (asked * asked)[outer].sum()) if outer.any() else np.nan


def _dead_zone(asked: np.ndarray, got: np.ndarray) -> float:
    """Return the greatest command up to which the response is less than half of what the gain says; 0: none is.

    It is the whole range of a policy that does not respond.
    """
    gain, zone = _gain(asked, got), 0.0
    if not gain >= LEAST_GAIN:
        return float(np.abs(asked).max()) if np.isfinite(gain) else np.nan
    for size in np.unique(np.abs(asked)):
        at = np.abs(asked) == size
        response = float(np.nanmean((np.sign(asked) * got)[at])) if np.isfinite(got[at]).any() else np.nan
        if not response < 0.5 * gain * size:
            break
        zone = float(size)
    return zone


def _overshoot(seen: np.ndarray, asked: np.ndarray, got: np.ndarray, width: int) -> float:
    """Return by how much the smoothed response to the largest commands exceeds its steady value, as a share."""
    shares = []
    for response, command, steady in zip(seen, asked, got):
        if abs(command) == np.abs(asked).max() and steady / command > LEAST_GAIN:
            smooth = np.convolve(response, np.full(width, 1.0 / width), mode="valid")
            shares.append(max(0.0, float((smooth / steady).max()) - 1.0))
    return float(np.mean(shares)) if shares else np.nan
