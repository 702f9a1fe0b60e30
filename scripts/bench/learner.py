"""The learner alone, all groups in one batch, against a loop of one module and one Adam per candidate."""

from __future__ import annotations

from argparse import Namespace
from statistics import median
from typing import Any, Iterator

import torch
from omegaconf import OmegaConf
from torch import Tensor
from tqdm import tqdm

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.base import EnvStep
from envcoder_bench.run.session import make_trainer
from envcoder_bench.trainers.base import train_iteration

from . import records
from .ppo_loop import Learner
from .records import Record
from .session import make_config, now

OBS_DIM, ACTION_DIM = 48, 12  # of IsaacGymEnvs' Anymal


class Playback:
    """An environment that costs nothing: the same random rollout again and again, whatever the actions."""

    def __init__(self, groups: int, envs: int, steps: int, device: Any) -> None:
        self.layout = GroupLayout(groups, envs)
        self.num_envs, self.device = self.layout.num_envs, torch.device(device)
        self.obs_dims, self.action_dims = [OBS_DIM] * groups, [ACTION_DIM] * groups
        self.group_seeds, self.alive = list(range(groups)), [True] * groups
        rng = torch.Generator().manual_seed(0)
        n = self.num_envs
        self.obs = torch.randn(steps, n, OBS_DIM, generator=rng).to(device)
        self.rewards = torch.rand(steps, n, generator=rng).to(device)
        self.dones = (torch.rand(steps, n, generator=rng) < 0.02).to(device)
        self.time_outs = self.dones & (torch.rand(steps, n, generator=rng) < 0.1).to(device)
        self.terminated = self.dones & ~self.time_outs
        self.t = 0

    def reset(self) -> Tensor:
        return self.obs[0]

    def step(self, actions: Tensor, final_obs: bool = False) -> EnvStep:
        t, self.t = self.t, (self.t + 1) % len(self.obs)
        return EnvStep(self.obs[self.t], self.rewards[t], self.terminated[t], self.time_outs[t])


def learner(args: Namespace) -> Iterator[Record]:
    """Time one iteration of both: acting at every step of the rollout, and the update.

    The loop's time is linear in its candidates, so ``--loop_candidates`` of them may stand for all.
    """
    cfg = make_config(args, num_envs_per_candidate=args.envs)
    steps = cfg.train.params.config.horizon_length
    env: Any = Playback(args.candidates, args.envs, steps, cfg.device)
    trainer, obs = make_trainer(cfg, env), env.reset()
    batched: list[float] = []
    for _ in tqdm(
        range(args.warmup + args.iterations), desc="one batch", unit=" iterations", leave=False, disable=None
    ):
        began = now(cfg.device)
        obs, _ = train_iteration(trainer, env, obs)
        batched.append(now(cfg.device) - began)
    del trainer
    count = min(args.loop_candidates or args.candidates, args.candidates)
    looped = _loop(cfg, Playback(count, args.envs, steps, cfg.device), args.loop_iterations)
    yield {
        "kind": "learner",
        "candidates": args.candidates,
        "envs": args.envs,
        "batched_s": median(batched[args.warmup :]),
        "loop_candidates": count,
        "loop_s": looped * args.candidates / count,
        **records.describe(cfg.device),
    }


def _loop(cfg: Any, env: Playback, iterations: int) -> float:
    """Median seconds of an iteration of plain learners, one after another; the first iteration is not counted."""
    params: Any = OmegaConf.to_container(cfg.train.params, resolve=True)
    n = env.layout.envs_per_group
    learners = [Learner(params, OBS_DIM, ACTION_DIM, n, cfg.device) for _ in range(env.layout.num_groups)]
    seconds: list[float] = []
    for _ in tqdm(range(1 + iterations), desc="a loop over candidates", unit=" iterations", leave=False, disable=None):
        began = now(cfg.device)
        for t in range(len(env.obs)):
            split = [env.layout.split(x) for x in (env.obs[t], env.rewards[t], env.dones[t], env.time_outs[t])]
            for k, one in enumerate(learners):
                obs, reward, done, time_out = (x[k] for x in split)
                one.act(obs)
                one.observe(reward, done, time_out)
        last = env.layout.split(env.obs[0])
        for k, one in enumerate(learners):
            one.update(last[k])
        seconds.append(now(cfg.device) - began)
    return median(seconds[1:])
