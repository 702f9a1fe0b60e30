"""Will it fit? An estimate before anything is allocated or written."""

from __future__ import annotations

import psutil  # rl_games' own dependency
import torch
from omegaconf import DictConfig

from envcoder_bench.errors import UserError
from envcoder_bench.preparation import build_task
from envcoder_bench.tasks.base import Task

USABLE = 0.9  # of the free memory: allocators round up, and other programs live here too


def check_memory(cfg: DictConfig, num_groups: int) -> None:
    """Estimate what a run of ``num_groups`` groups needs.

    Raises:
        UserError: more than is free; says how many environments per candidate fit.
    """
    task = build_task(cfg, 1)
    simulation = task.bytes_per_env
    evaluation = num_groups * cfg.evaluation.num_envs * simulation
    per_env = num_groups * (simulation + _learning_bytes(cfg, task))
    needed = evaluation + cfg.num_envs_per_candidate * per_env
    free = USABLE * _free_bytes(cfg.device)
    if needed > free:
        fit = max(0, int((free - evaluation) / per_env))
        raise UserError(
            f"{cfg.num_envs_per_candidate} environments for each of {num_groups} candidates, baselines and seeds need"
            f" about {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free on {cfg.device}: about {fit} each"
            " fit; lower --num_envs_per_candidate or evaluate fewer candidates at once"
        )


def _learning_bytes(cfg: DictConfig, task: Task) -> int:
    """The rollout of one environment, and the activations while the policy learns from it."""
    config, units = cfg.train.params.config, cfg.train.params.network.mlp.units
    # an observation is seldom wider than all of the state, an action than the joints
    obs = sum(x[0].numel() for x in task.state.values())
    samples = 2 * (obs + 4 * task.num_dofs + 8)  # the rollout, and its copy that is cut into minibatches
    # on CUDA all groups learn at once: outputs and gradients of every layer
    activations = 0 if cfg.device == "cpu" else 4 * sum(units) // int(config.get("num_minibatches", 1))
    return 4 * config.horizon_length * (samples + activations)


def _free_bytes(device: str) -> int:
    if device == "cpu":
        return psutil.virtual_memory().available
    return torch.cuda.mem_get_info(torch.device(device))[0]
