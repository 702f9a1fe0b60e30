"""Composition of a config from the YAML files of cfg/, those of its task and overrides; unknown keys are errors."""

import contextlib
import functools
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from envcoder_bench.core.errors import UnknownKey, UserError, near_matches, user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import Settings, dotted_keys, merged, nested, plain, select
from envcoder_bench.core.yaml_files import read_leaves, read_yaml
from envcoder_bench.run.spec import FILE, RunConfig
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.sim_task import covers
from envcoder_bench.tasks.spec import Can, TaskSpec
from envcoder_bench.trainers.registry import CONFIGS, trainer_class

BASE_TRAIN = "cfg/train/PPO.yaml"  # the base of every task's PPO config
_MIXED = "params.config.mixed_precision"
_TRAINER = "train.params.algo.name"
_EXAMPLES = "learning_iterations=100 or train.params.config.gamma=0.99"
Tree = Mapping[str, Any]


def compose_config(task: str | TaskSpec, overrides: Sequence[str] = ()) -> RunConfig:
    """Compose the config of a task.

    Args:
        task: a task, or its name, its folder or ``module:Class``.
        overrides: ``key=value`` in Hydra's override grammar.

    Raises:
        UserError: the task does not exist, its files are invalid, or an override is malformed, names an unknown key or
            has an invalid value; the message names the key, with near matches.
    """
    for override in overrides:
        if override.split("=")[0] in ("task", "train", "task.name", "task_source"):
            raise UserError(f"'{override}': choose the task with --task; its YAML is cfg/task/<Task>.yaml")
        if override.startswith(("+", "~")):
            raise UserError(f"'{override}': keys cannot be added or deleted, only set: write key=value")
    spec = find_task(task)
    tree = _overridden(spec, overrides)
    try:
        train = _count_minibatches(tree["train"])
    except ValueError as error:
        raise UserError(in_own_file(spec, tree["train"], str(error))) from None
    return RunConfig.checked({**tree, "train": train, "task_source": spec.source})


def trainer_keys(train: Tree) -> list[str]:
    """Return the dotted keys that the trainer of a train config reads, whether the config has them or not.

    It imports the trainer. The list is empty for an unknown trainer, which ``check_training`` refuses.
    """
    params = {"algo": {"name": select(train, "params.algo.name")}}
    with contextlib.suppress(ValueError):
        return [f"params.{key}" for key in trainer_class(params).keys()]  # noqa: SIM118, it is not a mapping
    return []


def find_task(task: str | TaskSpec) -> TaskSpec:
    """Return a task by its name, its folder or ``module:Class``. Raises UserError if there is none."""
    with user_input():
        return find_spec(task) if isinstance(task, str) else task


def train_defaults(spec: TaskSpec, trainer: str = "") -> Tree:
    """Return the train config of a task: its file, merged into the one that all tasks share.

    References to the task's YAML remain text.

    Args:
        trainer: an ``algo.name``; a trainer with a file of its own takes that instead of the task's.

    Raises ValueError if the file of an outside task is not valid YAML, or has an unknown key.
    """
    task_name = nested({"params.config.name": spec.name})
    if trainer in CONFIGS and not _names_trainer(spec, trainer):
        of_task = nested({"params.config.name": spec.name, "params.config.action_bound": spec.action_bound})
        return merged(_with_parents(_shipped(CONFIGS[trainer]), "train"), of_task)
    if spec.train is None or not spec.digest:
        return merged(_with_parents(spec.train or _shipped("PPO"), "train"), task_name)
    tree: dict[str, Any] = dict(read_yaml(spec.train))
    base = merged(_parents(spec.train, tree.pop("defaults", None) or ["PPO"], "train"), task_name)
    keys = dotted_keys(base)
    if not set(dotted_keys(tree)) <= set(keys):
        keys += trainer_keys(merged(base, tree))
    if Can.CHECKED_CONFIG not in spec.can:  # rl_games' own file: what has no effect here is left out
        return merged(base, _only(tree, {*keys} - {_MIXED}))
    for key in dotted_keys(tree):
        if key not in keys:
            hint = near_matches(key, keys)
            raise ValueError(f"{spec.train}: unknown key '{key}'{hint}; for IsaacGymEnvs' files see --train_config")
    return merged(base, tree)


def _names_trainer(spec: TaskSpec, trainer: str) -> bool:
    """Return whether a task's own train config is one for this trainer."""
    if spec.train is None:
        return False
    tree = dict(read_yaml(spec.train))
    parents = _parents(spec.train, tree.pop("defaults", ()), "train")
    return select(merged(parents, tree), "params.algo.name") == trainer


def _with_parents(path: Path, group: str) -> Settings:
    """Return a YAML file, merged into those of the same folder of cfg/ that its ``defaults`` name, as Hydra does."""
    tree = nested(read_leaves(path))
    return merged(_parents(path, tree.pop("defaults", ()), group), tree)


def _parents(path: Path, names: Any, group: str) -> Settings:
    """Return the files of a folder of cfg/ that the ``defaults`` of a file name, merged. Raises ValueError."""
    tree = Settings({})
    for name in names if isinstance(names, list) else [names] if isinstance(names, str) else names:
        if name == "_self_":
            continue
        if not isinstance(name, str) or not _shipped(name, group).is_file():
            hint = near_matches(str(name), sorted(file.stem for file in _shipped("", group).parent.glob("*.yaml")))
            general = "; PPO and RslRlPPO are general" if group == "train" else ""
            raise ValueError(f"{path}: defaults: there is no {name} in cfg/{group}{hint}{general}")
        tree = merged(tree, _with_parents(_shipped(name, group), group))
    return tree


def _shipped(name: str, group: str = "train") -> Path:
    return project_folder("cfg") / group / f"{name}.yaml"


def _only(tree: Tree, keys: set[str], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings without keys that are not in ``keys``."""
    kept = {key: value for key, value in tree.items() if f"{prefix}{key}" in keys}
    return {k: _only(v, keys, f"{prefix}{k}.") if isinstance(v, Mapping) else v for k, v in kept.items()}


def _count_minibatches(train: Any) -> Any:
    """Return ``train`` with IsaacGymEnvs' ``minibatch_size`` converted to ``num_minibatches``.

    It refers to the batch of the YAML's ``num_actors`` environments. A candidate's batch has another size and is
    divided into the same number of minibatches. Raises ValueError.
    """
    config = select(train, "params.config")
    size = config.get("minibatch_size") if isinstance(config, Mapping) else None
    if size is None:
        return train
    actors: Any
    horizon: Any
    actors, horizon = config.get("num_actors"), config.get("horizon_length")
    for key, value in (("minibatch_size", size), ("num_actors", actors), ("horizon_length", horizon)):
        if type(value) is not int or value < 1:
            raise ValueError(f"train.params.config.{key}: must be a whole number of at least 1, got {value}")
    if actors * horizon % size:
        raise ValueError(
            f"train.params.config.minibatch_size: {size} does not divide the batch of {actors * horizon} that it refers"
            f" to: num_actors={actors} environments x horizon_length={horizon} steps"
        )
    return merged(train, nested({"params.config.num_minibatches": actors * horizon // size}))


def in_own_file(spec: TaskSpec, train: Any, message: str) -> str:
    """Return a message about a key of the train config, ``train.params...: ...``, after the file that has the value.

    This is the train.yaml of an outside task; the message is unchanged if the value comes from elsewhere.
    """
    match = re.match(r"train\.([\w.]+): ", message)
    if match is None or spec.train is None or not spec.digest:
        return message
    try:
        value = select(read_yaml(spec.train), match[1])
    except (OSError, ValueError):  # it was changed since the run began
        return message
    return f"{spec.train}: {message}" if value is not None and value == select(train, match[1]) else message


def _overridden(spec: TaskSpec, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the values of the files with overrides. Raises UserError."""
    names = [word.removeprefix(f"{_TRAINER}=").strip("'\"") for word in overrides if word.startswith(f"{_TRAINER}=")]
    tree, shipped = _composed_files(spec, names[-1] if names else "")
    keys = dict.fromkeys(shipped)
    # the trainer first, because it has keys that are in no file
    overrides = sorted(overrides, key=lambda override: not override.startswith(f"{_TRAINER}="))
    used = spec.config_keys
    word = ""  # that is read
    try:
        # one by one, so that a message names the one
        for word in overrides:
            override = _parsed(word)
            key = override.key_or_group
            if override.package is not None:
                raise ValueError(f"{override.input_line}: keys have no @package")
            if override.is_sweep_override():
                raise ValueError(f"give one value, a list as {key}=[a,b], or a text with a comma as {key}='\"a,b\"'")
            if key.startswith("train.") and key not in keys:
                train = plain(OmegaConf.to_container(tree.train))
                keys.update(dict.fromkeys(f"train.{name}" for name in trainer_keys(train)))
            if key not in keys and not (key.startswith("task.") and covers(used, key.removeprefix("task."))):
                keys.update(dict.fromkeys(f"task.{name}" for name in used))
                hint = near_matches(key, keys) or f" (keys are such as {_EXAMPLES})"
                raise UnknownKey(key, f"unknown key '{key}'{hint}; the keys are those of {_files(spec)}")
            with open_dict(tree) if OmegaConf.select(tree, key) is None else contextlib.nullcontext():
                OmegaConf.update(tree, key, override.value(), merge=True)
        word = " ".join(word for word in overrides if "${" in word) or word
        return plain(OmegaConf.to_container(tree, resolve=True))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        hint = "; is a bracket or a quote missing?" if isinstance(error, HydraException) else ""
        raise UserError(f"cannot read the override {word}: {str(error).splitlines()[0]}{hint}") from None


@functools.lru_cache(maxsize=256)  # 5 ms for each
def _parsed(word: str) -> Override:
    (override,) = OverridesParser.create().parse_overrides([word])
    return override


def _files(spec: TaskSpec) -> str:
    """Return the names of the files that have the keys of a task's config."""
    if spec.digest:
        return f"{FILE}, {spec.config} and {spec.train or BASE_TRAIN}"
    return f"{FILE}, cfg/task/{spec.name}.yaml and cfg/train/{spec.name}PPO.yaml"


def _composed_files(spec: TaskSpec, trainer: str) -> tuple[DictConfig, tuple[str, ...]]:
    """Return the values of the files, and their keys. Raises UserError if those of an outside task are invalid."""
    folder = project_folder("cfg")
    files = [*sorted(folder.rglob("*.yaml")), *filter(None, (spec.config, spec.train))]
    state = tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in map(Path, files))
    with user_input():
        packed, keys = _composed(spec, trainer, state)
    return pickle.loads(packed), keys


@functools.lru_cache(maxsize=64)
def _composed(spec: TaskSpec, trainer: str, _state: tuple[Any, ...]) -> tuple[bytes, tuple[str, ...]]:
    """Return cfg/config.yaml with the task's YAML files, pickled, and its keys; ``_state`` is that of the files.

    OmegaConf creates the nodes of a config in seven times the time in which they are unpickled.
    """
    tree = nested(read_leaves(project_folder("cfg") / Path(FILE).name))
    del tree["defaults"]  # they name the groups task and train, which --task chooses
    if spec.digest:
        task: dict[str, Any] = dict(read_yaml(spec.config))
        node = merged(_parents(spec.config, task.pop("defaults", ()), "task"), task)
    else:
        node = _with_parents(_shipped(spec.name, "task"), "task")
    tree = {**tree, "task": plain(node), "train": plain(train_defaults(spec, trainer))}
    composed = OmegaConf.create(tree)
    OmegaConf.set_struct(composed, True)  # a mapping in an override adds no keys
    return pickle.dumps(composed), tuple(dotted_keys(tree))
