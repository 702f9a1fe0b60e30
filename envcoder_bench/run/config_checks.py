"""Validation of a run's config before anything is written; messages name the key."""

import math
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.run.config import in_own_file
from envcoder_bench.run.prepare.plan import parse_size
from envcoder_bench.run.seeds import LARGEST, check_seeds, run_seeds
from envcoder_bench.run.train.rungs import asked_rungs
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.sim.base import INTEGRATORS
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.registry import find_spec
from envcoder_bench.tasks.sim_task import SimTask
from envcoder_bench.trainers.base import Trainer
from envcoder_bench.trainers.registry import trainer_class

_WHOLE: dict[str, int] = {  # key: least value
    "num_envs_per_candidate": 1,
    "learning_iterations": 1,
    "seed": 0,
    "log_points": 1,
    "evaluation.num_envs": 1,
    "evaluation.points": 1,
    "evaluation.final_episodes": 1,
}
_MAPPINGS = (  # of cfg/train
    "params", "params.algo", "params.config", "params.config.reward_shaper", "params.model", "params.network",
    "params.network.mlp", "params.network.space", "params.network.space.continuous",
)  # fmt: skip
_TASK_WHOLE: dict[str, int] = {
    "env.episodeLength": 2,
    "sim.substeps": 1,
    "sim.mujoco.iterations": 1,
    "sim.mujoco.ls_iterations": 1,
    "env.controlFrequencyInv": 1,
    "env.control.controlFrequencyInv": 1,
}
_TASK_POSITIVE = ("sim.dt", "env.clipActions", "env.clipObservations")


def check_values(cfg: DictConfig) -> None:
    """Raise UserError for a key of cfg/config.yaml whose value has the wrong type or range."""
    check_seeds(cfg)
    for key, least in _WHOLE.items():
        value = OmegaConf.select(cfg, key)
        if type(value) is not int or value < least:
            raise UserError(f"{key} must be a whole number of at least {least}, got {value}")
    minutes = cfg.checkpoint_minutes
    if not isinstance(minutes, (int, float)) or isinstance(minutes, bool) or not minutes >= 0:
        raise UserError(f"checkpoint_minutes must be a number of at least 0, got {minutes}")
    if cfg.max_memory is not None:
        parse_size(cfg.max_memory)
    for key in ("baselines", "profile", "compile_shapers", "untrusted", "save_state", "deterministic"):
        if not isinstance(cfg[key], bool):
            raise UserError(f"{key} must be true or false, got {cfg[key]}")
    steps = cfg.evaluation.point_steps
    if steps is not None and (type(steps) is not int or steps < 1):
        raise UserError(f"evaluation.point_steps must be a whole number of at least 1, or null, got {steps}")
    if not isinstance(cfg.evaluation.record, bool):
        raise UserError(f"evaluation.record must be true or false, got {cfg.evaluation.record}")
    _check_race_values(cfg)
    if cfg.isolate not in (None, "process"):
        raise UserError(f"isolate must be process, or null, got {cfg.isolate}")
    if cfg.untrusted and not cfg.compile_shapers:
        raise UserError(
            "untrusted candidates run only as traced programs: set compile_shapers=true, or untrusted=false"
        )
    if cfg.fitness is not None and not isinstance(cfg.fitness, str):
        raise UserError(f"fitness must be a file with compute_fitness, got {cfg.fitness}")
    _check_fitness_bounds(cfg)
    if cfg.baseline not in BASELINE_FILES:
        raise UserError(f"baseline must be {' or '.join(BASELINE_FILES)}, got {cfg.baseline}")
    if cfg.shaper_types is not None and not (isinstance(cfg.shaper_types, ListConfig) and cfg.shaper_types):
        raise UserError(f"shaper_types must be a list such as [compute_reward], or null, got {cfg.shaper_types}")
    for kind in cfg.shaper_types if cfg.shaper_types is not None else ():
        if kind not in SHAPER_TYPES:
            hint = near_matches(str(kind), SHAPER_TYPES)
            raise UserError(f"unknown shaper type '{kind}'{hint}; there are {', '.join(SHAPER_TYPES)}")


def check_deterministic(cfg: DictConfig) -> None:
    """Raise UserError if a deterministic run on CUDA is asked for that cannot be one."""
    if not cfg.deterministic or cfg.device == "cpu":
        return
    spec = find_spec(cfg.task_source or cfg.task.name)
    if not issubclass(spec.task_class, SimTask):
        raise UserError(
            f"--deterministic does not support {spec.name} on CUDA, a task of Isaac Gym code: omit it, or use"
            " --device cpu"
        )
    params: Any = OmegaConf.to_container(cfg.train.params, resolve=True)
    if not trainer_class(params).deterministic:
        raise UserError("--deterministic on CUDA supports the trainer ppo alone: omit --trainer, or use --device cpu")


def check_task(cfg: DictConfig) -> None:
    """Raise UserError for a value of the task's YAML that has the wrong type or range."""
    spec = find_spec(cfg.task.name)
    _check_node(OmegaConf.load(spec.config), cfg.task, "task", issubclass(spec.task_class, SimTask))
    for key, least in _TASK_WHOLE.items():
        value = OmegaConf.select(cfg.task, key)
        if value is not None and (type(value) is not int or value < least):
            raise UserError(f"task.{key} must be a whole number of at least {least}, got {value}")
    for key in _TASK_POSITIVE:
        value = OmegaConf.select(cfg.task, key)
        if value is not None and not value > 0:
            raise UserError(f"task.{key} must be above 0, got {value}")
    integrator = OmegaConf.select(cfg.task, "sim.mujoco.integrator")
    if integrator is not None and integrator not in INTEGRATORS:
        hint = near_matches(str(integrator), INTEGRATORS)
        raise UserError(f"task.sim.mujoco.integrator: unknown '{integrator}'{hint}; there are {', '.join(INTEGRATORS)}")


def _check_node(shipped: Any, given: Any, key: str, native: bool) -> None:
    """Compare the type of a value with the shipped value's: a mapping, a list of numbers, or a number.

    What lists of a task of Isaac Gym code may hold is for that code to say.
    """
    if given == shipped:
        return
    if isinstance(shipped, DictConfig):
        if not isinstance(given, DictConfig):
            raise UserError(f"{key} must hold the keys {', '.join(map(str, shipped))}, got {given}")
        for name in shipped:
            _check_node(shipped[name], given.get(name), f"{key}.{name}", native)
    elif isinstance(shipped, ListConfig) and not native:
        if not isinstance(given, ListConfig):
            raise UserError(f"{key} must be a list, such as {shipped}, got {given}")
    elif isinstance(shipped, ListConfig):
        if not isinstance(given, ListConfig) or len(given) != len(shipped) or not all(map(_is_number, given)):
            raise UserError(f"{key} must be a list of {len(shipped)} numbers, such as {shipped}, got {given}")
    elif _is_number(shipped) and not _is_number(given):
        raise UserError(f"{key} must be a number, such as {shipped}, got {given}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def check_training(cfg: DictConfig) -> None:
    """Raise UserError if the trainer does not accept cfg/train."""
    try:
        check_params(OmegaConf.to_container(cfg.train, resolve=True), cfg.num_envs_per_candidate)
    except ValueError as error:
        raise UserError(in_own_file(cfg, str(error))) from error


def _check_fitness_bounds(cfg: DictConfig) -> None:
    bounds = cfg.get("fitness_bounds")
    if bounds is None:
        return
    if cfg.fitness is None:
        raise UserError("fitness_bounds are those of a --fitness file; the task's own fitness has its own")
    numbers = list(bounds) if isinstance(bounds, ListConfig) else []
    good = len(numbers) == 2 and all(type(x) in (int, float) and math.isfinite(x) for x in numbers)
    if not good or numbers[0] >= numbers[1]:
        raise UserError(f"fitness_bounds must be two numbers, the least first, such as [0, 1], or null, got {bounds}")


def _check_race_values(cfg: DictConfig) -> None:
    """Raise UserError for a key of ``race`` whose value has the wrong type or range."""
    race = cfg.race
    if not isinstance(race, DictConfig) or not isinstance(race.get("enabled"), bool):
        raise UserError(f"race.enabled must be true or false, got race={race}")
    if not _is_number(race.keep) or not 0 < race.keep <= 1:
        raise UserError(f"race.keep must be a number above 0 and at most 1, got {race.keep}")
    if race.rungs is not None and not isinstance(race.rungs, ListConfig):
        raise UserError(f"race.rungs must be a list of iterations, such as [100, 200], or null, got {race.rungs}")
    asked_rungs(cfg)
    count = len(run_seeds(cfg))
    if cfg.seed + count - 1 > LARGEST:
        raise UserError(f"seed: the last of {count} seeds must be at most {LARGEST}, got seed={cfg.seed}")


def check_race(cfg: DictConfig) -> None:
    """Raise UserError if the run is to race, and cannot."""
    if not cfg.race.enabled:
        return
    for key, why in (
        ("isolate", "cannot regroup candidates that train in processes of their own"),
        ("profile", "cannot profile a race"),
    ):
        if cfg[key]:
            raise UserError(f"--race: this version {why}: leave out --{key}, or --race")
    trainer = trainer_class(OmegaConf.to_container(cfg.train.params, resolve=True))  # type: ignore[arg-type]
    if trainer.split_state is Trainer.split_state or trainer.join_states is Trainer.join_states:
        raise UserError(f"--race needs a trainer that can split its state by candidate, and {trainer.__name__} cannot")
    if not find_spec(cfg.task.name).task_class.regroups:
        raise UserError(f"--race regroups environments, and the state of {cfg.task.name} cannot be split by candidate")


def check_params(train: Any, num_envs: int) -> None:
    """Raise ValueError, naming the key, if ``train`` is not valid for groups of ``num_envs`` environments."""
    for key in _MAPPINGS:
        node = train
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            raise ValueError(f"train.{key} must hold keys, got {node}")
    params = train["params"]
    batch: Any = params["config"].get("horizon_length")
    try:
        if type(batch) is int and batch * num_envs < 2:
            raise ValueError(f"params.config.horizon_length: must be at least 2 with one environment, got {batch}")
        trainer_class(params).check(params, num_envs)
    except ValueError as error:
        raise ValueError(f"train.{error}") from error
    except (TypeError, LookupError, AttributeError, RuntimeError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"train.params cannot be used: {type(error).__name__}: {reason}") from error


def share_out(num_envs: int, groups: int) -> int:
    """Return the environments per group; raise UserError if ``num_envs`` is not divisible."""
    if num_envs < 1:
        raise UserError(f"--num_envs must be at least 1, got {num_envs}")
    if num_envs < groups or num_envs % groups:
        below = num_envs // groups * groups
        nearest = f"{below} or {below + groups}" if below > 0 else f"{groups}"
        raise UserError(
            f"--num_envs {num_envs} cannot be divided evenly among {groups} groups"
            f" (candidates and baselines times seeds); the nearest numbers that can: {nearest}"
        )
    return num_envs // groups
