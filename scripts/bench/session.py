"""One training run to measure: the tool's own parts, put together as evaluate.py does, without evaluations."""

from __future__ import annotations

import resource
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from statistics import median
from typing import Any, List

import psutil  # rl_games' own dependency
import torch
from rl_games.common.algo_observer import AlgoObserver
from tqdm import tqdm

from envcoder_bench.config import compose_config
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.groups import GroupLayout
from envcoder_bench.memory import release
from envcoder_bench.preparation import Group, build_task, prepare
from envcoder_bench.run_folder import CandidateSource
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import Task
from envcoder_bench.training import make_agent

MIN_SECONDS, MIN_ROUNDS = 1.0, 3  # of a measurement of physics


def make_config(args: Namespace, **values: Any) -> Any:
    """The run's config for ANYmal: ``values``, and the command line's own ``key=value`` over them."""
    cfg = compose_config("Anymal", [*(f"{key}={value}" for key, value in values.items()), *args.overrides])
    cfg.sim, cfg.device = pick_simulator(args.sim, args.device)
    if cfg.device == "cpu":
        torch.set_num_threads(1)  # as evaluate.py: the threads go to the simulator and to the learners
    return cfg


def now(device: Any) -> float:
    """Seconds, once the device has done everything that it was asked to do."""
    if torch.device(device).type != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


@dataclass
class Session:
    """Candidates in training."""

    cfg: Any
    groups: List[Group]
    env: GroupedVecTask
    agent: Any

    @classmethod
    def build(cls, args: Namespace, candidates: List[CandidateSource], envs: int) -> Session:
        """Load, check and set up; ends the program if a candidate fails."""
        cfg = make_config(args, num_envs_per_candidate=envs, learning_iterations=1000)
        groups, failed = prepare(cfg, candidates)
        if failed:
            sys.exit("\n".join(f"{name} failed: {error}" for name, error in failed.items()))
        release(cfg.device)  # as evaluate.py: what checking took
        layout = GroupLayout(len(groups), envs)
        shapings, seeds = [group.shaping for group in groups], [group.seed for group in groups]
        env = GroupedVecTask(build_task(cfg, layout.num_envs), layout, shapings, seeds)
        agent = make_agent(cfg, env, AlgoObserver())
        agent.obs = agent.env_reset()
        return cls(cfg, groups, env, agent)

    @property
    def steps_per_iteration(self) -> int:
        return self.env.num_envs * self.cfg.train.params.config.horizon_length

    def iterate(self) -> float:
        """Run one iteration, rollout and update; returns its seconds."""
        began = now(self.cfg.device)
        self.agent.update_epoch()
        self.agent.train_epoch()
        return now(self.cfg.device) - began

    def check(self) -> None:
        """End the program if a candidate has failed: what was measured is not what it says."""
        self.env.dispatch.poll()
        if not all(self.env.alive):
            sys.exit("\n".join(f"{self.groups[g].name} failed: {error}" for g, error in self.env.failures.items()))


def physics_rate(task: Task, steps: int) -> float:
    """Env-steps/s of the simulation alone: random position targets, nothing else.

    The median over rounds of ``steps`` control steps, each after a reset (not timed) to the default state.
    """
    targets = 0.3 * torch.randn(8, task.num_envs, task.num_dofs, device=task.device) + task.state["default_dof_pos"]
    task.set_drive_mode(torch.zeros(task.num_envs, dtype=torch.bool, device=task.device))
    every = torch.ones(task.num_envs, dtype=torch.bool, device=task.device)
    seconds: List[float] = []
    with tqdm(desc=f"bare physics of {task.num_envs:,}", unit=" rounds", leave=False, disable=None) as bar:
        while len(seconds) < MIN_ROUNDS or sum(seconds) < MIN_SECONDS:
            task.reset(every, task.default_state, {})
            for k in range(4):
                task.step(targets[k])
            began = now(task.device)
            for k in range(steps):
                task.step(targets[k % 8])
            seconds.append(now(task.device) - began)
            bar.update()
    return task.num_envs * steps / median(seconds)


def memory_gib(device: Any) -> float:
    """GiB: on CUDA all that is taken of the GPU, by whomever, else this process's peak."""
    if torch.device(device).type != "cpu":
        free, total = torch.cuda.mem_get_info(device)
        return (total - free) / 2**30
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def process_age() -> float:
    """Seconds since this process began, the interpreter's start and all imports included."""
    return time.time() - psutil.Process().create_time()
