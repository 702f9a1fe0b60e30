"""How policies move: what fitness does not say of chatter, saturation, limits, feet, energy and contacts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.sim.base import Robot
from envcoder_bench.stress.disturbed_env import GRAVITY, DisturbedEnv

TOUCH = 1.0  # N: more force on a body is a contact
SATURATED = 0.98  # share of the limit
SLOWEST = 0.1  # m/s; the cost of transport of a slower robot says nothing
SUMS = ("steps", "saturated", "fast", "energy", "way")
FEET = ("feet_indices", "extremities_index")  # constants of tasks that name the bodies which are feet


class Motion:
    """Measures the motion in a round of episodes; a ``Recorder``.

    Args:
        env: where the episodes begin; they may ``go_on`` in another one.

    Attributes:
        absent: why columns are not measured, by the name of the column.
    """

    def __init__(self, env: DisturbedEnv) -> None:
        self._env, self._layout, robot = env, env.layout, env.robot
        task, n, device = env.task, env.num_envs, env.device
        self._rows = torch.arange(n, device=device)  # places in the first environment
        self.absent: dict[str, str] = {}
        # efforts: torque limits scale with the motors' strength
        limits = robot.effort_limits
        self._limited = _where(torch.isfinite(limits) & (limits > 0.0), device)
        self._saturation_limits = limits.to(device)[self._limited] * SATURATED
        if not len(self._limited):
            self.absent["torque_saturation"] = "no motor of the model has a limit of its effort"
        speeds = torch.full_like(limits, torch.inf) if robot.velocity_limits is None else robot.velocity_limits
        self._fast = _where(torch.isfinite(speeds), device)
        self._speeds = speeds.to(device)[self._fast] * SATURATED
        if not len(self._fast):
            self.absent["velocity_saturation"] = "the model has no limits of velocities"
        # ranges of the joints
        lower, upper = robot.dof_limits_lower, robot.dof_limits_upper
        self._ranged = _where(torch.isfinite(lower) & torch.isfinite(upper), device)
        self._lower, self._upper = (x.to(device)[self._ranged] for x in (lower, upper))
        if not len(self._ranged):
            self.absent["limit_margin"] = "no joint of the model has a range"
        # feet
        named = next((task.constants[name].tolist() for name in FEET if name in task.constants), None)
        feet = robot.feet if named is None else named
        self._feet = None if feet is None else torch.tensor(feet, device=device)
        if feet is None:
            self.absent |= dict.fromkeys(("foot_impact", "foot_slip"), "the task does not say which bodies are feet")
        else:
            self._points, self._points_before = _tracked(robot, feet), torch.zeros(n, len(feet), 3, device=device)
        self._loaded = torch.zeros(n, 0 if feet is None else len(feet), dtype=torch.bool, device=device)
        self._mass = float(robot.body_masses.sum())
        if not robot.floating:
            self.absent["cost_of_transport"] = "the robot's base is fixed"
        # sums over the steps of each episode, and numbers of every step with the episodes' rows
        self._sums = {name: torch.zeros(n, device=device) for name in SUMS}
        self._slip = torch.zeros(2, n, device=device)
        self._touched = torch.zeros(n, len(robot.body_names), dtype=torch.bool, device=device)
        self._series: dict[str, list[tuple[Tensor, Tensor]]] = {
            name: [] for name in ("action_acceleration", "limit_margin", "foot_impact")
        }
        self._acted = [torch.zeros_like(env.actions) for _ in range(2)]
        self._widths = env.layout.per_env(torch.tensor(env.action_dims, device=device))
        self._place = robot.root_states[:, :2].clone()

    def go_on(self, env: DisturbedEnv, kept: Tensor) -> None:
        """Measure the episodes of some rows, ``kept``, in an environment that goes on with them."""
        self._env, self._rows = env, self._rows[kept]
        self._acted = [x[kept, : env.actions.shape[1]] for x in self._acted]
        self._widths, self._place, self._loaded = self._widths[kept], self._place[kept], self._loaded[kept]
        if self._feet is not None:
            self._points, self._points_before = _tracked(env.robot, self._feet.tolist()), self._points_before[kept]

    def step(self, t: int, active: Tensor, ended: Tensor) -> None:
        """Measure the ``t``-th step of the environments that it does not end."""
        env, robot, alive = self._env, self._env.robot, active & ~ended
        if t == 0:
            self._place.copy_(robot.root_states[:, :2])
        self._count("steps", alive)
        # actions: second differences, from the third step on
        acceleration = env.actions - 2.0 * self._acted[0] + self._acted[1]
        self._acted = [env.actions.clone(), self._acted[0]]
        rate = torch.sqrt(_summed(acceleration * acceleration) / self._widths) / env.task.dt**2
        self._add("action_acceleration", rate, alive if t >= 2 else torch.zeros_like(alive))
        # efforts and joints
        if "torque_saturation" not in self.absent:
            limits = env.strength.unsqueeze(1) * self._saturation_limits
            full = (robot.dof_force[:, self._limited].abs() >= limits).float().sum(dim=1)
            self._count("saturated", alive * full / len(self._limited))
        if "velocity_saturation" not in self.absent:
            full = (robot.dof_vel[:, self._fast].abs() >= self._speeds).float().sum(dim=1)
            self._count("fast", alive * full / len(self._fast))
        if "limit_margin" not in self.absent:
            pos = robot.dof_pos[:, self._ranged]
            margin = torch.minimum(pos - self._lower, self._upper - pos) / (self._upper - self._lower)
            self._add("limit_margin", margin.amin(dim=1), alive)
        self._count("energy", alive * _summed((robot.dof_force * robot.dof_vel).abs()) * env.task.dt)
        moved = robot.root_states[:, :2] - self._place
        self._place.copy_(robot.root_states[:, :2])
        self._count("way", alive * torch.sqrt(_summed(moved * moved)))
        # contacts
        force = torch.sqrt(_summed(robot.contact_forces * robot.contact_forces))
        self._touched[self._rows] |= alive.unsqueeze(1) & (force > TOUCH)
        if self._feet is not None:
            self._step_of_feet(t, force[:, self._feet], alive)

    def _step_of_feet(self, t: int, force: Tensor, alive: Tensor) -> None:
        loaded = force > TOUCH
        # the robot is dropped where an episode begins: that is not an impact of its gait
        landing = loaded & ~self._loaded & (t * self._env.task.dt > 0.5)
        impact = torch.where(landing, force, 0.0).amax(dim=1) / (self._mass * GRAVITY)
        self._add("foot_impact", impact, alive & landing.any(dim=1))
        points = self._points()
        moved = (points - self._points_before)[..., :2]
        speed = torch.sqrt(_summed(moved * moved)) / self._env.task.dt
        both = (loaded & self._loaded & alive.unsqueeze(1)).float()
        self._slip[:, self._rows] += torch.stack([_summed(speed * both), _summed(both)])
        self._loaded = loaded
        self._points_before.copy_(points)

    def _add(self, name: str, values: Tensor, where: Tensor) -> None:
        self._series[name].append((self._rows, torch.where(where, values, torch.nan)))

    def _count(self, name: str, values: Tensor) -> None:
        self._sums[name][self._rows] += values

    def columns(self) -> list[list[dict[str, Any]]]:
        """Return the columns by group and draw; NaN where nothing was measured."""
        env, grid = self._env, self._env.grid
        shape = (self._layout.num_groups, -1, grid.episodes)
        sums = {name: x.cpu().numpy().astype(np.float64).reshape(shape).sum(axis=2) for name, x in self._sums.items()}
        slip, stood = (x.cpu().numpy().astype(np.float64).reshape(shape).sum(axis=2) for x in self._slip)
        touched = np.any(self._touched.cpu().numpy().reshape(*shape, len(env.robot.body_names)), axis=2)
        with np.errstate(invalid="ignore", divide="ignore"):
            numbers = {
                "action_acceleration": self._percentile("action_acceleration", 95, shape),
                "torque_saturation": sums["saturated"] / sums["steps"],
                "velocity_saturation": sums["fast"] / sums["steps"],
                "limit_margin": self._percentile("limit_margin", 5, shape),
                "foot_impact": self._percentile("foot_impact", 95, shape),
                "foot_slip": slip / stood,
                "cost_of_transport": np.where(
                    sums["way"] > SLOWEST * sums["steps"] * env.task.dt,
                    sums["energy"] / (self._mass * GRAVITY * sums["way"]),
                    np.nan,
                ),
            }
        groups, draws = touched.shape[:2]
        return [
            [
                {
                    **{name: float(x[g, k]) for name, x in numbers.items() if name not in self.absent},
                    "new_contacts": self._new_contacts(touched[g, k] & ~touched[g, 0]),
                }
                for k in range(draws)
            ]
            for g in range(groups)
        ]

    def _percentile(self, name: str, percent: float, shape: tuple[int, ...]) -> np.ndarray:
        """Return a percentile over steps and episodes, ``(groups, draws)``."""
        series = self._series[name]
        if not series:
            return np.full((shape[0], self._layout.envs_per_group // shape[2]), np.nan)
        steps = torch.full((self._layout.num_envs, len(series)), torch.nan, device=self._env.device)
        for t, (rows, values) in enumerate(series):
            steps[rows, t] = values
        steps = steps.view(shape[0], -1, shape[2] * len(series))
        ordered, count = steps.sort(dim=2).values, steps.isfinite().sum(dim=2, keepdim=True)  # NaN last
        place = (count - 1).clamp(min=0).double() * (percent / 100.0)
        low, high = (ordered.gather(2, x.long()).double() for x in (place.floor(), place.ceil()))
        return (low + (high - low) * (place - place.floor()))[..., 0].cpu().numpy()

    def _new_contacts(self, bodies: np.ndarray) -> str:
        return " ".join(name for name, touches in zip(self._env.robot.body_names, bodies) if touches)


def _tracked(robot: Robot, feet: Sequence[int]) -> Callable[[], Tensor]:
    """Return ``robot.track(feet)``; its first call is of the present state, and later ones of the last step."""
    points = robot.track(feet)
    points()
    return points


def _where(mask: Tensor, device: torch.device) -> Tensor:
    """Return indices on a device; indexing with a mask there waits for it."""
    return mask.nonzero()[:, 0].to(device)


def _summed(x: Tensor) -> Tensor:
    """Return the sum over the last axis, in a fixed order, so that it does not depend on the number of rows."""
    total = x[..., 0].clone()
    for column in range(1, x.shape[-1]):
        total = total + x[..., column]
    return total
