"""The fitness of a policy with finer physics steps than in its training."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
from omegaconf import OmegaConf
from rl_games.common.gym_compat import gym  # gymnasium, or gym on Python 3.8
from rl_games.torch_runner import Runner
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.prepare import baseline_sources, build_task, prepare

from . import records
from .records import Record
from .session import make_config


def finer(args: Namespace) -> Iterator[Record]:
    """Evaluate a baseline's exported policy in the same episodes for each number of physics steps per control step."""
    if not args.policy.is_file():
        sys.exit(f"--policy {args.policy}: there is no such file")
    for substeps in args.substeps:
        args.overrides = [x for x in args.overrides if not x.startswith("task.sim.substeps=")]
        args.overrides.append(f"task.sim.substeps={substeps}")
        cfg = make_config(args, num_envs_per_candidate=args.episodes)
        groups, failed = prepare(cfg, [s for s in baseline_sources(args.task) if s.name == args.candidate])
        if failed:
            sys.exit("\n".join(f"{name} failed: {error}" for name, error in failed.items()))
        task = build_task(cfg, args.episodes)
        env = GroupedVecTask(task, GroupLayout(1, args.episodes), [groups[0].evaluation], [cfg.seed])
        played = run_episodes(env, _player(cfg, env, args.policy), 1, EVALUATION_STEP)
        yield {
            "kind": "finer", "task": args.task, "candidate": args.candidate, "sim": cfg.sim, "substeps": substeps,
            "physics_step_ms": 1000 * task.dt / (substeps * int(_repeats(cfg))), "episodes": args.episodes,
            "fitness": played.fitness[0].tolist(), "length": float(played.length.mean()),
            **records.describe(cfg.device),
        }  # fmt: skip


def _repeats(cfg: Any) -> int:
    """Return the length of a control step in units of IsaacGymEnvs' ``sim.dt``."""
    env = cfg.task.env
    return (env.get("control") or {}).get("controlFrequencyInv", env.get("controlFrequencyInv", 1))


def _player(cfg: Any, env: GroupedVecTask, policy: Path) -> Callable[[Tensor], Tensor]:
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
