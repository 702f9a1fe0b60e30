"""Validation of a run's config before anything is written; messages name the key."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from envcoder_bench.core.errors import UserError, near_matches, type_and_line
from envcoder_bench.core.settings import Settings, plain, select
from envcoder_bench.core.yaml_files import read_yaml
from envcoder_bench.run.config import in_own_file
from envcoder_bench.run.prepare.plan import parse_size
from envcoder_bench.run.seeds import LARGEST, run_seeds
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.run.train.rungs import asked_rungs
from envcoder_bench.sim.base import INTEGRATORS
from envcoder_bench.tasks.spec import Can, TaskSpec
from envcoder_bench.trainers.base import Trainer
from envcoder_bench.trainers.registry import trainer_class

_MAPPINGS = ("params", "params.algo", "params.config")  # keys of cfg/train that every trainer needs
_TASK_WHOLE: dict[str, int] = {
    "env.episodeLength": 2,
    "sim.substeps": 1,
    "sim.mujoco.iterations": 1,
    "sim.mujoco.ls_iterations": 1,
    "env.controlFrequencyInv": 1,
    "env.control.controlFrequencyInv": 1,
}
_TASK_POSITIVE = ("sim.dt", "env.clipActions", "env.clipObservations")


def check_values(cfg: RunConfig) -> None:
    """Raise UserError for keys of cfg/config.yaml that contradict each other, or an invalid size or rung."""
    if cfg.max_memory is not None:
        parse_size(cfg.max_memory)
    if cfg.untrusted and not cfg.compile_shapers:
        raise UserError(
            "untrusted candidates run only as traced programs: set compile_shapers=true, or untrusted=false"
        )
    bounds = cfg.fitness_bounds
    if bounds is not None and cfg.fitness is None:
        raise UserError("fitness_bounds are those of a --fitness file; the task's own fitness has its own")
    asked_rungs(cfg)
    count = len(run_seeds(cfg))
    if cfg.seed + count - 1 > LARGEST:
        raise UserError(f"seed: the last of {count} seeds must be at most {LARGEST}, got seed={cfg.seed}")


def check_half_step(spec: RunSpec) -> None:
    """Raise UserError if half the physics step is asked for of a task that brings its own simulation."""
    if spec.config.evaluation.half_step and Can.HALF_STEP not in spec.task.can:
        raise UserError(
            f"evaluation.half_step: {spec.task.name} brings its own simulation, whose step is not changed: omit it"
        )


def check_deterministic(spec: RunSpec) -> None:
    """Raise UserError if a deterministic run on CUDA is asked for that cannot be one."""
    cfg = spec.config
    if not cfg.deterministic or cfg.device == "cpu":
        return
    if Can.DETERMINISTIC not in spec.task.can:
        raise UserError(
            f"--deterministic does not support {spec.task.name} on CUDA, because it brings its own simulation: omit it,"
            " or use --device cpu"
        )
    if not trainer_class(cfg.params).deterministic:
        raise UserError("--deterministic on CUDA supports the trainer ppo alone: omit --trainer, or use --device cpu")


def check_task(spec: TaskSpec, config: Settings) -> None:
    """Raise UserError for a value of a task's YAML that has the wrong type or range."""
    _check_node(read_yaml(spec.config), config, "task", Can.CHECKED_CONFIG in spec.can)
    # what a type does not say: numbers for which the simulation has no meaning
    for key, least in _TASK_WHOLE.items():
        value = select(config, key)
        if value is not None and (type(value) is not int or value < least):
            raise UserError(f"task.{key} must be a whole number of at least {least}, got {value}")
    for key in _TASK_POSITIVE:
        value = select(config, key)
        if value is not None and not value > 0:
            raise UserError(f"task.{key} must be above 0, got {value}")
    integrator = select(config, "sim.mujoco.integrator")
    if integrator is not None and integrator not in INTEGRATORS:
        hint = near_matches(str(integrator), INTEGRATORS)
        raise UserError(f"task.sim.mujoco.integrator: unknown '{integrator}'{hint}; there are {', '.join(INTEGRATORS)}")


def _check_node(shipped: Any, value: Any, key: str, native: bool) -> None:
    """Compare the type of a value with the shipped value's: a mapping, a list of numbers, or a number.

    What lists may hold that the task's own code reads is for that code to say.
    """
    if value == shipped:
        return
    if isinstance(shipped, Mapping):
        if not isinstance(value, Mapping):
            raise UserError(f"{key} must hold the keys {', '.join(map(str, shipped))}, got {value}")
        for name in shipped:
            _check_node(shipped[name], value.get(name), f"{key}.{name}", native)
    elif isinstance(shipped, tuple):
        if not isinstance(value, tuple) and not native:
            raise UserError(f"{key} must be a list, such as {plain(shipped)}, got {value}")
        numbers = isinstance(value, tuple) and len(value) == len(shipped) and all(map(_is_number, value))
        if native and not numbers:
            such = f"a list of {len(shipped)} numbers, such as {plain(shipped)}"
            raise UserError(f"{key} must be {such}, got {plain(value)}")
    elif _is_number(shipped) and not _is_number(value):
        raise UserError(f"{key} must be a number, such as {shipped}, got {plain(value)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def check_training(spec: RunSpec) -> None:
    """Raise UserError if the trainer does not accept cfg/train."""
    cfg = spec.config
    try:
        check_params(plain(cfg.train), cfg.num_envs_per_candidate)
    except ValueError as error:
        raise UserError(in_own_file(spec.task, cfg.train, str(error))) from error


def check_race(spec: RunSpec) -> None:
    """Raise UserError if the run is to race, and cannot."""
    cfg = spec.config
    if not cfg.race.enabled:
        return
    for key, why in (
        ("isolate", "cannot regroup candidates that train in processes of their own"),
        ("profile", "cannot profile a race"),
    ):
        if getattr(cfg, key):
            raise UserError(f"--race: this version {why}: leave out --{key}, or --race")
    trainer = trainer_class(cfg.params)
    if trainer.split_state is Trainer.split_state or trainer.join_states is Trainer.join_states:
        raise UserError(f"--race needs a trainer that can split its state by candidate, and {trainer.__name__} cannot")


def check_params(train: Any, num_envs: int) -> None:
    """Raise ValueError, naming the key, if ``train`` is not valid for groups of ``num_envs`` environments."""
    _check_mappings(train, _MAPPINGS)
    params = train["params"]
    _check_mappings(train, [f"params.{key}" for key in trainer_class(params).sections])
    batch: Any = params["config"].get("horizon_length")
    try:
        if type(batch) is int and batch * num_envs < 2:
            raise ValueError(f"params.config.horizon_length: must be at least 2 with one environment, got {batch}")
        trainer_class(params).check(params, num_envs)
    except ValueError as error:
        raise ValueError(f"train.{error}") from error
    except (TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise ValueError(f"train.params cannot be used: {type_and_line(error)}") from error


def _check_mappings(train: Any, keys: Iterable[str]) -> None:
    for key in keys:
        node = train
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            raise ValueError(f"train.{key} must hold keys, got {node}")


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
