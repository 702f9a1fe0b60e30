"""Conversion of the user's task and train YAML files in IsaacGymEnvs' format to overrides of cfg/."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.settings import dotted, merged, nested, plain, select
from envcoder_bench.core.yaml_files import parse_yaml, read_leaves, read_yaml
from envcoder_bench.run.config import train_defaults, trainer_keys
from envcoder_bench.run.config_checks import check_task
from envcoder_bench.tasks.sim_task import check_only, covers
from envcoder_bench.tasks.spec import Can, TaskSpec
from envcoder_bench.trainers.ppo.hyperparameters import check_ranges, check_supported

log = logging.getLogger(__name__)

# a reference to IsaacGymEnvs' main config with a default, which is used
_DEFAULT = re.compile(r"\$\{resolve_default:([^,{}]*),.*\}", re.DOTALL)
_OUTSIDE = "outside"
# keys of a train YAML that the program sets, and keys that have no effect
_OWN = (
    "params.seed", "params.load_checkpoint", "params.load_path", "params.config.name", "params.config.env_name",
    "params.config.full_experiment_name", "params.config.num_actors", "params.config.device",
    "params.config.device_name", "params.config.multi_gpu", "params.config.train_dir",
)  # fmt: skip
_NO_EFFECT = {
    "params.config.max_epochs": "see --learning_iterations",
    "params.config.max_frames": "see --learning_iterations",
    "params.config.score_to_win": "",
    "params.config.save_best_after": "",
    "params.config.save_frequency": "",
    "params.config.print_stats": "",
    "params.config.seq_len": "",
    "params.config.seq_length": "",
    "params.config.player": "",
}
_MIXED = "params.config.mixed_precision"
Leaves = dict[str, Any]


def file_overrides(task: TaskSpec, task_config: str | None, train_config: str | None) -> Leaves:
    """Return the values of ``--task_config`` and ``--train_config`` by keys of cfg/.

    Keys without an effect are listed in a warning.

    Raises UserError if a file cannot be read, is for another task, or has an unknown key or an invalid value.
    """
    values: Leaves = {}
    num_envs = None
    if task_config is not None:
        leaves = _leaves(task_config)
        num_envs = leaves.get("env.numEnvs")
        values.update({f"task.{key}": value for key, value in _task_values(task, task_config, leaves).items()})
    if train_config is not None:
        values.update({f"train.{key}": value for key, value in _train_values(task, train_config, num_envs).items()})
    return values


def _task_values(task: TaskSpec, file: str, leaves: Leaves) -> Leaves:
    if not leaves or any(key.startswith("params.") for key in leaves):
        raise UserError(f"--task_config {file} is {'not a task YAML: see --train_config' if leaves else 'empty'}")
    foreign = Can.CHECKED_CONFIG not in task.can  # it reads its YAML itself
    if foreign:
        leaves = {key: value for key, value in leaves.items() if key != "name" and not _refers(value)}
    # a YAML of this task
    if leaves.get("name", task.name) != task.name:
        raise UserError(f"--task_config {file} is for {leaves['name']}, and --task is {task.name}")
    if leaves.get("task.randomize") is True and not foreign:
        raise UserError(f"--task_config {file}: task.randomize is True, but domain randomization is not available here")
    # keys that are used, that are known to have no effect, and others
    used, ignored = task.config_keys, task.ignored_keys
    values = {key: value for key, value in leaves.items() if covers(used, key) and key != "name"}
    without = [key for key in ignored if any(covers((key,), leaf) for leaf in leaves)]
    without = [key for key in without if not covers(tuple(values), key)]
    for key in leaves:
        if not covers(used + ignored, key):
            raise _unknown("--task_config", file, key, leaves[key], used + ignored)
    try:
        check_only(nested(leaves), task.only)
    except ValueError as error:
        raise UserError(f"--task_config {file}: {error}") from error
    # these substeps were chosen for PhysX
    if not foreign and any(covers(("physics_engine", "sim.physx"), key) for key in leaves) and "sim.substeps" in values:
        del values["sim.substeps"]
        without.append("sim.substeps (for PhysX; see task.sim.substeps)")
    _refuse_references(file, "--task_config", values)
    try:
        check_task(task, merged(read_yaml(task.config), nested(values)))
    except UserError as error:
        raise UserError(f"--task_config {file}: {error}") from error
    _say_without_effect("--task_config", file, without)
    return values


def _train_values(task: TaskSpec, file: str, num_envs: Any) -> Leaves:
    leaves = _leaves(file)
    if not any(key.startswith("params.") for key in leaves):
        raise UserError(f"--train_config {file} is not a train YAML: it has no keys below 'params'")
    # each key is used, is known to have no effect, or is refused
    defaults = train_defaults(task)
    keys = (*trainer_keys(defaults), *dotted(defaults))
    values: Leaves = {}
    without: list[str] = []
    for key, value in leaves.items():
        if covers(_OWN, key) or (key == _MIXED and value is False):
            continue
        if key == _MIXED:
            without.append(f"{key} (everything is float32)")
            continue
        without_effect = [name for name in _NO_EFFECT if covers((name,), key)]
        if without_effect and plain(select(defaults, key)) == value:
            continue  # a copy of the shipped file
        if without_effect:
            name, reason = without_effect[0], _NO_EFFECT[without_effect[0]]
            without.append(f"{name} ({reason})" if reason else name)
        elif key in keys:
            values[key] = value
        else:
            raise _unknown("--train_config", file, key, value, keys)
    # num_actors, which may refer to the task's number of environments
    actors = leaves.get("params.config.num_actors", _OUTSIDE)
    actors = num_envs if _refers(actors) else actors
    if actors is not None and not _refers(actors):
        values["params.config.num_actors"] = actors
    _refuse_references(file, "--train_config", values)
    # the values as they would train
    params = plain(merged(defaults, nested(values))["params"])
    try:
        check_supported(params)
        check_ranges(params)
    except ValueError as error:
        raise UserError(f"--train_config {file}: {error}") from error
    _say_without_effect("--train_config", file, list(dict.fromkeys(without)))
    return values


def _unknown(flag: str, file: str, key: str, value: Any, keys: Sequence[str]) -> UserError:
    below = [name for name in keys if name.startswith(f"{key}.")]
    if below:
        return UserError(f"{flag} {file}: {key} must hold keys, such as {below[0]}, got {value}")
    return UserError(f"{flag} {file}: unknown key '{key}'{near_matches(key, keys)}")


def _leaves(file: str) -> Leaves:
    """Return the values of a YAML by dotted keys; references to other files remain text, without a default."""
    with user_input():
        try:
            leaves = read_leaves(Path(file))
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
    for key, value in leaves.items():
        if isinstance(value, str) and (match := _DEFAULT.fullmatch(value)):
            leaves[key] = parse_yaml(f"x: {match[1]}").x
    return leaves


def _refers(value: Any) -> bool:
    return value == _OUTSIDE or (isinstance(value, str) and "${" in value)


def _refuse_references(file: str, flag: str, values: Leaves) -> None:
    for key, value in values.items():
        if _refers(value):
            raise UserError(f"{flag} {file}: {key} is {value}, which is not in this file: write its value there")


def _say_without_effect(flag: str, file: str, keys: list[str]) -> None:
    if keys:
        log.warning("%s %s: these keys have no effect here: %s", flag, file, ", ".join(keys))
