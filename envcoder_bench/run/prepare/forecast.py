"""How long training will take, as a range with what it assumes."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import torch

from envcoder_bench.core.words import duration
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.tasks.base import Task
from mujoco_batches.process import usable_cpus

PHYSICS_STEPS = 20
PHYSICS_SHARE = 0.9, 0.25  # share of the time of training, without the learner's
EPISODES = 0.1, 1.0  # share of the full length
FLOPS_PER_CORE = 2e10, 2e9  # the learner's: 32-bit, small matrices
GPU_STEPS = 4e6, 3e5  # env-steps/s: one H100 with hundreds of candidates, or with few


@dataclass(frozen=True)
class Physics:
    """What a small simulation on the CPU says of a task: env-steps per second, joints, and steps of an episode."""

    speed: float
    num_dofs: int
    max_episode_length: int

    @classmethod
    def of(cls, probe: Task) -> Physics:
        """Measure the speed; the state of the simulation changes."""
        command = torch.zeros(probe.num_envs, probe.num_dofs, device=probe.device)
        probe.step(command)
        began = time.perf_counter()
        for _ in range(PHYSICS_STEPS):
            probe.step(command)
        speed = PHYSICS_STEPS * probe.num_envs / (time.perf_counter() - began)
        return cls(speed, probe.num_dofs, probe.max_episode_length)


def training_steps(cfg: RunConfig, groups: int) -> float:
    """Return the env-steps of groups that train to the end."""
    horizon = int(cfg.params["config"].get("horizon_length", 1))
    return float(groups * cfg.num_envs_per_candidate * cfg.learning_iterations * horizon)


def evaluation_steps(cfg: RunConfig, physics: Physics, episodes: int) -> float:
    """Return the steps of a group's evaluations if every episode has its full length; ``episodes`` are of the last."""
    asked, full = cfg.evaluation, physics.max_episode_length
    points = asked.points * asked.num_envs * min(asked.point_steps or full, full)
    return float(points + episodes * full)


def run_line(cfg: RunConfig, groups: int, physics: Physics | None, devices: int = 1) -> str:
    """Describe the env-steps and the time of a run whose ``groups`` are left."""
    played = 0.0 if physics is None else groups * evaluation_steps(cfg, physics, cfg.evaluation.final_episodes)
    race = " at most: the race stops some" if cfg.race.enabled else ""
    return f"time: {time_line(cfg, training_steps(cfg, groups), played, physics, devices)}{race}"


def time_line(cfg: RunConfig, steps: float, played: float, physics: Physics | None, devices: int = 1) -> str:
    """Describe env-steps of training and its time.

    Args:
        steps: env-steps of training.
        played: those of evaluations, if every episode has its full length; not used for a GPU.
        physics: of the task, for a CPU; without it only the steps are known.
    """
    size, seconds = f"{rounded(steps)} env-steps", training_seconds(cfg, steps, played, physics, devices)
    if seconds is None:
        return size
    if cfg.device != "cpu":
        return f"{size}, {span(*seconds)} of training (at {GPU_STEPS[1]:,.0f} to {GPU_STEPS[0]:,.0f} env-steps/s)"
    return f"{size}, {span(*seconds)} of training and evaluation (from the speed of the physics here, on idle cores)"


def training_seconds(
    cfg: RunConfig, steps: float, played: float, physics: Physics | None, devices: int = 1
) -> tuple[float, float] | None:
    """Return the least and the most seconds of training; None if they are not known. Arguments as of ``time_line``."""
    if cfg.device != "cpu":
        low, high = (steps / speed / devices for speed in GPU_STEPS)
        return low, high
    if physics is None:
        return None
    # both the physics and the learner take time
    flops, cores = learner_flops(cfg, physics.num_dofs), usable_cpus()
    low, high = (
        (steps + share * played) / physics.speed / of_physics + steps * flops / (per_core * cores)
        for share, of_physics, per_core in zip(EPISODES, PHYSICS_SHARE, FLOPS_PER_CORE)
    )
    return low, high


def learner_flops(cfg: RunConfig, num_dofs: int) -> float:
    """Return the floating-point operations of a step: the rollout's, and those of the epochs forwards and backwards."""
    network = cfg.params.get("network", {})
    units = [int(n) for n in network.get("mlp", {}).get("units", ())]
    # observations have some numbers for each joint
    widths = [4 * num_dofs, *units, num_dofs]
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    return 2.0 * weights * (1 + 3 * int(cfg.params["config"].get("mini_epochs", 1)))


def span(low: float, high: float) -> str:
    return f"{duration(low)} to {duration(high)}"


def rounded(number: float) -> str:
    """Return a number with two digits, as words for millions."""
    digits = float(f"{number:.2g}")
    return f"{digits / 1e6:,.3g} million" if digits >= 1e6 else f"{digits:,.0f}"
