"""The fitness of policies with other physics settings than in their training, such as finer steps."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import torch
from omegaconf import OmegaConf
from rl_games.common.gym_compat import gym  # gymnasium, or gym on Python 3.8
from rl_games.torch_runner import Runner
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.plan import release
from envcoder_bench.run.prepare import Group, prepare
from envcoder_bench.run.run_files import baseline_sources
from envcoder_bench.run.run_task import build_task

from . import records
from .motion import watched
from .records import Record
from .session import make_config
from .settings import Physics, describe_physics, engine_model, finer_than, with_physics

Policy = Callable[[Tensor], Tensor]


def finer(args: Namespace) -> Iterator[Record]:
    """Evaluate exported policies of a baseline in the same episodes with each of the settings of the physics."""
    for path in args.policy:
        if not path.is_file():
            sys.exit(f"--policy {path}: there is no such file")
    settings = [*(Physics(substeps=n) for n in args.substeps or ()), *(args.physics or ())]
    if not settings:
        settings = [Physics(), *finer_than(make_config(args).task)]
    for physics in settings:
        cfg = make_config(with_physics(args, physics), num_envs_per_candidate=args.episodes, seeds=len(args.policy))
        groups, failed = prepare(cfg, [s for s in baseline_sources(args.task) if s.name == args.candidate])
        if failed:
            sys.exit("\n".join(f"{name} failed: {error}" for name, error in failed.items()))
        yield from score(cfg, groups, args.episodes, lambda env, cfg=cfg: players(cfg, env, args.policy))


def score(
    cfg: Any, groups: Sequence[Group], episodes: int, make_policy: Callable[[GroupedVecTask], Policy]
) -> Iterator[Record]:
    """Evaluate policies, and yield a record for each candidate: fitness of its seeds, and how they move.

    With one seed, ``fitness`` is that of its episodes.
    """
    layout = GroupLayout(len(groups), episodes)
    task = build_task(cfg, layout.num_envs)
    env = GroupedVecTask(task, layout, [group.evaluation for group in groups], [group.seed for group in groups])
    model = engine_model(cfg.task)
    with watched(env, model) as motion:
        played = run_episodes(env, make_policy(env), 1, EVALUATION_STEP)
    about = {"task": cfg.task.name, "sim": cfg.sim, **describe_physics(cfg.task, model), "episodes": episodes}
    for name in dict.fromkeys(group.name for group in groups):
        own = [g for g, group in enumerate(groups) if group.name == name]
        each = [played.fitness[g].double() for g in own]
        fitness = each[0].tolist() if len(own) == 1 else [float(x.mean()) for x in each]
        yield {
            "kind": "finer", **about, "candidate": name, "seeds": len(own), "fitness": fitness,
            "length": float(torch.stack([played.length[g] for g in own]).mean()),
            "motion": [motion.summary(g) for g in own], **records.describe(cfg.device),
        }  # fmt: skip
    del env, task
    release(cfg.device)


def players(cfg: Any, env: GroupedVecTask, policies: Sequence[Path]) -> Policy:
    """Return a function from the observations of all environments to the actions of their groups' policies."""
    each = [_player(cfg, env, policy) for policy in policies]
    layout = env.layout
    return lambda obs: torch.cat([play(obs[layout.slice(g)]) for g, play in enumerate(each)])


def _player(cfg: Any, env: GroupedVecTask, policy: Path) -> Policy:
    """Return rl_games' player of a policy: a function from observations to deterministic actions ``(n, k)``."""
    params: Any = OmegaConf.to_container(cfg.train.params)
    spaces = {
        "observation_space": gym.spaces.Box(-np.inf, np.inf, (env.obs_dims[0],), np.float32),
        "action_space": gym.spaces.Box(-1.0, 1.0, (env.action_dims[0],), np.float32),
    }
    params["config"].update(env_name="", env_info=spaces, device_name=str(cfg.device))
    runner = Runner()
    runner.load({"params": params})
    player = runner.create_player()
    player.restore(str(policy))
    player.has_batch_dimension = True
    return lambda obs: player.get_action(obs, True)
