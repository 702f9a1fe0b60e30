"""Refuse what no run can be made of, by name, before anything is written."""

from __future__ import annotations

import math
from typing import Any, Dict

from omegaconf import DictConfig, OmegaConf

from envcoder_bench.errors import UserError, near_matches
from envcoder_bench.learning.learner import GroupedLearner
from envcoder_bench.memory import parse_size
from envcoder_bench.shaping.contract import SHAPER_TYPES
from envcoder_bench.tasks.base import BASELINES

_WHOLE: Dict[str, int] = {  # key: least value
    "num_envs_per_candidate": 1,
    "learning_iterations": 1,
    "seeds": 1,
    "seed": 0,
    "log_points": 1,
    "evaluation.num_envs": 1,
    "evaluation.points": 1,
    "evaluation.final_episodes": 1,
}
_MOST_SEED = 2**32 - 1  # numpy's, which rl_games seeds


def check_values(cfg: DictConfig) -> None:
    """Raise UserError for a key of cfg/config.yaml whose value has the wrong kind or range."""
    for key, least in _WHOLE.items():
        value = OmegaConf.select(cfg, key)
        if type(value) is not int or value < least:
            raise UserError(f"{key} must be a whole number of at least {least}, got {value}")
    if cfg.seed + cfg.seeds - 1 > _MOST_SEED:
        raise UserError(f"seed: the last of {cfg.seeds} seeds must be at most {_MOST_SEED}, got seed={cfg.seed}")
    minutes = cfg.checkpoint_minutes
    if not isinstance(minutes, (int, float)) or isinstance(minutes, bool) or not minutes >= 0:
        raise UserError(f"checkpoint_minutes must be a number of at least 0, got {minutes}")
    if cfg.max_memory is not None:
        parse_size(cfg.max_memory)
    for key in ("baselines", "profile", "compile_shapers", "untrusted"):
        if not isinstance(cfg[key], bool):
            raise UserError(f"{key} must be true or false, got {cfg[key]}")
    if cfg.untrusted and not cfg.compile_shapers:
        raise UserError(
            "untrusted candidates run as traced programs alone: leave compile_shapers=true, or untrusted=false"
        )
    if cfg.fitness is not None and not isinstance(cfg.fitness, str):
        raise UserError(f"fitness must be a file with compute_fitness, got {cfg.fitness}")
    if cfg.baseline not in BASELINES:
        raise UserError(f"baseline must be {' or '.join(BASELINES)}, got {cfg.baseline}")
    for kind in cfg.shaper_types if cfg.shaper_types is not None else ():
        if kind not in SHAPER_TYPES:
            hint = near_matches(str(kind), SHAPER_TYPES)
            raise UserError(f"unknown shaper type '{kind}'{hint}; there are {', '.join(SHAPER_TYPES)}")


def check_training(cfg: DictConfig) -> None:
    """Raise UserError if no learner can be made from cfg/train, by making a small one."""
    where = f"cfg/train/{cfg.task.name}PPO.yaml"
    params: Any = OmegaConf.to_container(cfg.train.params, resolve=True)
    try:
        for key in ("learning_rate", "gamma", "tau", "e_clip"):
            if not 0 <= float(params["config"][key]) < math.inf:
                raise ValueError(f"params.config.{key}: must be a number of at least 0, got {params['config'][key]}")
        if int(params["config"]["mini_epochs"]) < 1:
            raise ValueError(f"params.config.mini_epochs: must be at least 1, got {params['config']['mini_epochs']}")
        if not isinstance(params["config"]["reward_shaper"], dict) or not isinstance(params["algo"], dict):
            raise ValueError("params.config.reward_shaper and params.algo must be mappings")
        batch = cfg.num_envs_per_candidate * int(params["config"]["horizon_length"])
        if batch < 2:
            raise ValueError(f"num_envs_per_candidate times horizon_length must be at least 2, got {batch}")
        GroupedLearner([4], [2], [0], params, cfg.num_envs_per_candidate, "cpu")
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise UserError(f"{where}: cannot be used: {type(error).__name__}: {error}") from error


def share_out(num_envs: int, groups: int) -> int:
    """Environments per group; raises UserError if ``num_envs`` cannot be shared out evenly."""
    if num_envs < groups or num_envs % groups:
        below = num_envs // groups * groups
        nearest = f"{below} or {below + groups}" if below > 0 else f"{groups}"
        raise UserError(
            f"--num_envs {num_envs} cannot be shared out evenly among {groups} groups (candidates and baselines times"
            f" seeds); the nearest that can: {nearest}"
        )
    return num_envs // groups
