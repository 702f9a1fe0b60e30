"""A training run for measurements, without evaluations."""

from __future__ import annotations

import resource
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import psutil  # rl_games' own dependency
import torch
from torch import Tensor
from tqdm import tqdm

from envcoder_bench.core.errors import user_input
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.prepare.plan import release
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.run.train.session import make_trainer
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import Task
from envcoder_bench.trainers.base import Trainer, train_iteration

MIN_SECONDS, MIN_ROUNDS = 1.0, 3  # least duration and rounds of a measurement of physics


def make_spec(args: Namespace, **values: Any) -> RunSpec:
    """The run for ``--task`` (ANYmal): ``values``, and the command line's own ``key=value`` over them.

    Raises:
        UserError: the task is unknown or cannot be built here, or an override, simulator or device is invalid.
    """
    task = getattr(args, "task", "Anymal")
    with user_input():
        cfg = compose_config(task, [*(f"{key}={value}" for key, value in values.items()), *args.overrides])
        sim, device = pick_simulator(args.sim, args.device)
        spec = RunSpec.of(cfg).changed(sim=sim, device=device)
    if device == "cpu":
        torch.set_num_threads(1)  # the simulator and the learners use the threads, as in evaluate.py
    return spec


def now(device: Any) -> float:
    """Return the time in seconds after the device has finished all work."""
    if torch.device(device).type != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@dataclass
class Session:
    """Candidates in training; ``obs`` are the environment's last observations."""

    spec: RunSpec
    groups: list[Group]
    env: GroupedVecTask
    trainer: Trainer
    obs: Tensor

    @classmethod
    def build(cls, args: Namespace, candidates: list[CandidateSource], envs: int, seeds: int = 1) -> Session:
        """Load, check and set up; exit if a candidate fails."""
        spec = make_spec(args, num_envs_per_candidate=envs, learning_iterations=100_000, seeds=seeds)
        fitness = read_fitness(spec.task, spec.config)
        groups, failed = prepare(replace(spec, sources=tuple(candidates), fitness=fitness))
        if failed:
            sys.exit("\n".join(f"{name} failed: {error}" for name, error in failed.items()))
        release(spec.config.device)  # the memory of the checks, as in a run
        env = build_env(spec, [group.shaping for group in groups], [group.seed for group in groups], envs)
        return cls(spec, groups, env, make_trainer(spec.config, env), env.reset())

    @property
    def cfg(self) -> RunConfig:
        return self.spec.config

    @property
    def steps_per_iteration(self) -> int:
        return self.env.num_envs * self.cfg.train.params.config.horizon_length

    def iterate(self) -> float:
        """Run one iteration, rollout and update; return its seconds."""
        began = now(self.cfg.device)
        self.obs, _ = train_iteration(self.trainer, self.env, self.obs)
        return now(self.cfg.device) - began

    def check(self) -> None:
        """Exit if a candidate has failed, because the measurement would be wrong."""
        self.env.dispatch.poll()
        if not all(self.env.alive):
            sys.exit("\n".join(f"{self.groups[g].name} failed: {error}" for g, error in self.env.failures.items()))


def physics_rate(task: Task, commands: Sequence[Tensor], begin: Callable[[], object], steps: int) -> float:
    """Return the env-steps/s of the simulation alone: the median over rounds of ``steps`` control steps.

    Args:
        commands: ``(num_envs, num_dofs)`` each, given in turn.
        begin: begins episodes, before each round, which is not timed.
    """
    seconds: list[float] = []
    with tqdm(desc=f"bare physics of {task.num_envs:,}", unit=" rounds", leave=False, disable=None) as bar:
        while len(seconds) < MIN_ROUNDS or sum(seconds) < MIN_SECONDS:
            begin()
            for k in range(4):
                task.step(commands[k])
            began = now(task.device)
            for k in range(steps):
                task.step(commands[k % len(commands)])
            seconds.append(now(task.device) - began)
            bar.update()
    return task.num_envs * steps / median(seconds)


def anymal_physics_rate(task: Task, steps: int) -> float:
    """Return the env-steps/s of ANYmal alone, with random position targets from the default stance."""
    task.set_drive_mode(torch.zeros(task.num_envs, dtype=torch.bool, device=task.device))
    noise = torch.randn(8, task.num_envs, task.num_dofs, device=task.device)
    every = torch.ones(task.num_envs, dtype=torch.bool, device=task.device)
    targets = list(0.3 * noise + task.state["default_dof_pos"])
    return physics_rate(task, targets, lambda: task.reset(every, task.default_state, {}), steps)


def memory_gib(device: Any) -> float:
    """Return GiB: on CUDA the used memory of the GPU, of all processes; otherwise this process's peak."""
    if torch.device(device).type != "cpu":
        free, total = torch.cuda.mem_get_info(device)
        return (total - free) / 2**30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def process_age() -> float:
    """Return the seconds since this process began, including the interpreter's start and imports."""
    return time.time() - psutil.Process().create_time()
