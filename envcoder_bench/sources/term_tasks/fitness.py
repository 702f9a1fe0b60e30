"""Fitness of a task: its own metric of success, the error of tracking a velocity, or the reward that it registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.sources.term_tasks.dialect import Dialect

TRACKING, SUCCESS, REGISTERED = "tracking", "success", "registered"


@dataclass(frozen=True)
class Measure:
    """The kind of a task's fitness, and its description.

    Attributes:
        name: of the command or the metric.
        reduction, bounds, meaning: as ``Task`` has them.
    """

    kind: str
    name: str
    reduction: str
    bounds: tuple[float, float]
    meaning: str


def measure_of(dialect: Dialect, cfg: Any) -> Measure:
    """Return how well-tracked commands, success or the reward of a config are measured."""
    for name, metric in dialect.get(cfg, "metrics", {}).items():
        if getattr(metric, "reduce", "") == "last":
            meaning = f"the task's metric '{name}' at the end of the episode"
            return Measure(SUCCESS, name, "sum", (-float("inf"), float("inf")), meaning)
    for name, command in dialect.terms(cfg, "commands").items():
        if hasattr(getattr(command, "ranges", None), "lin_vel_x"):
            meaning = (
                f"mean of exp(-e) over steps and both errors e of the command '{name}': planar velocity [m/s] and yaw"
                " rate [rad/s]; 1 = tracked exactly"
            )
            if getattr(getattr(cfg.scene, "terrain", None), "terrain_generator", None) is not None:
                meaning += "; in episodes spread evenly over the levels of the terrain"
            return Measure(TRACKING, name, "mean", (0.0, 1.0), meaning)
    weights = [dialect.get(term, "weight") for term in dialect.terms(cfg, "rewards").values()]
    best = sum(weight for weight in weights if weight > 0)
    meaning = "mean over steps of the reward that the task registers, divided by the sum of its positive weights"
    worst = -float("inf") if any(weight < 0 for weight in weights) else 0.0
    return Measure(REGISTERED, str(best or 1.0), "mean", (worst, 1.0), meaning)


class Fitness:
    """The fitness of a control step of every environment.

    Args:
        dialect: of the framework.
        measure: its kind.
        num_envs: environments.
    """

    def __init__(self, dialect: Dialect, measure: Measure, num_envs: int, device: torch.device) -> None:
        self.dialect, self.measure = dialect, measure
        self.before = torch.zeros(num_envs, device=device)  # the metric of the step before

    def __call__(self, env: Any, reward: Tensor) -> Tensor:
        """Score a step of a block's environments, whose rewards are ``reward`` ``(n,)``."""
        measure = self.measure
        if measure.kind == TRACKING:
            term = env.command_manager.get_term(measure.name)
            linear, angular = self.dialect.root_velocities(env, term)
            planar = torch.norm(term.command[:, :2] - linear[:, :2], dim=1)
            yaw = torch.abs(term.command[:, 2] - angular[:, 2])
            return 0.5 * (torch.exp(-planar) + torch.exp(-yaw))
        if measure.kind == SUCCESS:
            manager = env.metrics_manager
            now = manager._step_values[:, manager.active_terms.index(measure.name)]
            change = now - self.before[env.rows]
            self.before[env.rows] = now
            return change
        return reward / (self.dialect.reward_scale(env.cfg, env.step_dt) * float(measure.name))

    def begin(self, mask: Tensor) -> None:
        """Begin episodes where ``mask`` is True."""
        self.before.masked_fill_(mask, 0.0)
