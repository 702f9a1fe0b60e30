"""The learner alone: all candidates in one batch, or one learner per candidate."""

from argparse import Namespace
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch
from bench import records
from bench.records import Record
from bench.session import make_spec, now
from torch import Tensor
from tqdm import tqdm

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.base import EnvStep
from envcoder_bench.run.train.session import make_trainer
from envcoder_bench.trainers.base import train_iteration

OBS_DIM, ACTION_DIM = 48, 12  # widths of IsaacGymEnvs' Anymal


class Playback:
    """An environment that replays the same random rollout, whatever the actions."""

    def __init__(self, groups: int, envs: int, steps: int, device: Any) -> None:
        self.layout = GroupLayout(groups, envs)
        self.num_envs, self.device = self.layout.num_envs, torch.device(device)
        self.obs_dims, self.action_dims = [OBS_DIM] * groups, [ACTION_DIM] * groups
        self.group_seeds, self.alive = list(range(groups)), [True] * groups
        self.critic_dims, self.critic_obs = [0] * groups, None
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
    cfg = make_spec(args, num_envs_per_candidate=args.envs).config
    count = min(args.loop_candidates or args.candidates, args.candidates)
    batched = _seconds(args, cfg, [args.candidates], "one batch")
    looped = _seconds(args, cfg, [1] * count, "a loop over candidates")
    yield {
        "kind": "learner", "candidates": args.candidates, "envs": args.envs, "batched_s": batched,
        "loop_candidates": count, "loop_s": looped * args.candidates / count, **records.describe(cfg.device),
    }  # fmt: skip


def _seconds(args: Namespace, cfg: Any, sizes: list[int], what: str) -> float:
    """Return the median seconds of an iteration of trainers with ``sizes`` candidates, one after another."""
    steps = cfg.train.params.config.horizon_length
    shared: Any = Playback(sizes[0], args.envs, steps, cfg.device)
    trainers = [make_trainer(cfg, shared) for _ in sizes]
    seconds: list[float] = []
    for _ in tqdm(range(args.warmup + args.iterations), desc=what, unit=" iterations", leave=False, disable=None):
        began = now(cfg.device)
        for trainer in trainers:
            train_iteration(trainer, shared, shared.obs[shared.t])
        seconds.append(now(cfg.device) - began)
    return median(seconds[args.warmup :])
