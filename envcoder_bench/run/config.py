"""Composition of a run's config from cfg/ with Hydra. Unknown keys are errors."""

import copy
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.tasks.registry import find_spec
from envcoder_bench.tasks.sim_task import SimTask, covers, used_keys
from envcoder_bench.tasks.spec import TaskSpec

BASE_TRAIN = "cfg/train/PPO.yaml"  # what the PPO configs of all tasks are merged into
# keys that the trainer reads and that are not in the files of cfg/train
OPTIONAL_TRAIN_KEYS = tuple(
    f"params.config.{key}"
    for key in (
        "num_actors", "minibatch_size", "minibatch_size_per_env", "schedule_type", "weight_decay", "bound_loss_type",
        "use_smooth_clamp", "schedule_entropy",
    )
)  # fmt: skip


def compose_config(task: str, overrides: Sequence[str] = ()) -> DictConfig:
    """Compose the config of a task.

    Args:
        task: a task's name, its folder or ``module:Class``.
        overrides: ``key=value`` in Hydra's override grammar.

    Raises:
        UserError: there is no such task, its files are invalid, or an override is malformed or names an unknown key;
            the message has near matches.
    """
    for override in overrides:
        if override.split("=")[0] in ("task", "train", "task.name", "task_source"):
            raise UserError(f"'{override}': choose the task with --task; its YAML is cfg/task/<Task>.yaml")
        if override.startswith(("+", "~")):
            raise UserError(f"'{override}': keys cannot be added or deleted, only set: write key=value")
    with user_input():
        spec = find_spec(task)
        task = spec.name
        if spec.digest:
            _store(spec)
    try:
        cfg = _compose(task, [_optional(task, override) for override in overrides])
        OmegaConf.resolve(cfg)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_explain(error, task, overrides)) from error
    cfg.task_source = spec.source
    try:
        _count_minibatches(cfg)
    except ValueError as error:
        raise UserError(in_own_file(cfg, str(error))) from error
    return cfg


def _store(spec: TaskSpec) -> None:
    """Register the YAML files of an outside task with Hydra. Raises ValueError if they are invalid."""
    store = ConfigStore.instance()
    store.store(group="task", name=spec.name, node=load_yaml(spec.config))
    store.store(group="train", name=f"{spec.name}PPO", node=train_defaults(spec))


def train_defaults(spec: TaskSpec) -> DictConfig:
    """Return the PPO config of a task: its file, merged into the one that all tasks share.

    Raises:
        ValueError: the file of an outside task is not valid YAML, or has an unknown key.
    """
    shipped = spec.train if not spec.digest else None
    base = _with_parents(shipped or project_folder("cfg") / "train" / "PPO.yaml")
    base.params.config.name = spec.name
    if spec.train is None or shipped is not None:
        return base
    own = load_yaml(spec.train)
    known = [*config_keys(base), *OPTIONAL_TRAIN_KEYS]
    foreign = not issubclass(spec.task_class, SimTask)
    for key in config_keys(own):
        if key in known and not (foreign and key == "params.config.mixed_precision"):
            continue
        if foreign:  # rl_games' own file: what has no effect here is left out
            parent, _, name = key.rpartition(".")
            node = OmegaConf.select(own, parent) if parent else own
            if isinstance(node, DictConfig) and name in node:
                del node[name]
        else:
            hint = near_matches(key, known)
            raise ValueError(f"{spec.train}: unknown key '{key}'{hint}; for IsaacGymEnvs' files see --train_config")
    merged = OmegaConf.merge(base, own)
    assert isinstance(merged, DictConfig)
    return merged


def _with_parents(path: Path) -> DictConfig:
    """Return a file of cfg/train, merged into the file that its ``defaults`` name, as Hydra does."""
    node = load_yaml(path)
    parents = [name for name in node.pop("defaults", ()) if name != "_self_"]
    merged = OmegaConf.merge(*(_with_parents(path.with_name(f"{name}.yaml")) for name in parents), node)
    assert isinstance(merged, DictConfig)
    return merged


def load_yaml(path: Path) -> DictConfig:
    """Read a YAML mapping. Raises ValueError with a one-line message."""
    try:
        node = OmegaConf.load(path)
    except (YAMLError, OmegaConfBaseException, UnicodeError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(node, DictConfig):
        raise ValueError(f"{path} is not a YAML mapping of keys to values")
    return node


def _optional(task: str, override: str) -> str:
    """Allow an override to add a key that has an effect, but is not in the files of cfg/."""
    key = override.split("=")[0]
    group, _, rest = key.partition(".")
    adds = rest in OPTIONAL_TRAIN_KEYS if group == "train" else False
    if group == "task":
        adds = covers(used_keys(find_spec(task).task_class), rest)
    return f"++{override}" if adds else override


def _count_minibatches(cfg: DictConfig) -> None:
    """Convert IsaacGymEnvs' ``minibatch_size`` to ``num_minibatches``.

    It refers to the batch of the YAML's ``num_actors`` environments. A candidate's batch has another size and is
    divided into the same number of minibatches. Raises ValueError.
    """
    config = OmegaConf.select(cfg, "train.params.config")
    size = config.get("minibatch_size") if isinstance(config, DictConfig) else None
    if size is None:
        return
    actors, horizon = config.get("num_actors"), config.get("horizon_length")
    for key, value in (("minibatch_size", size), ("num_actors", actors), ("horizon_length", horizon)):
        if type(value) is not int or value < 1:
            raise ValueError(f"train.params.config.{key}: must be a whole number of at least 1, got {value}")
    if actors * horizon % size:
        raise ValueError(
            f"train.params.config.minibatch_size: {size} does not divide the batch of {actors * horizon} that it refers"
            f" to: num_actors={actors} environments x horizon_length={horizon} steps"
        )
    config.num_minibatches = actors * horizon // size


def in_own_file(cfg: DictConfig, message: str) -> str:
    """Return a message about a key of the train config, ``train.params...: ...``, after the file that has the value.

    This is the train.yaml of an outside task; the message is unchanged if the value comes from elsewhere.
    """
    found, spec = re.match(r"train\.([\w.]+): ", message), find_spec(cfg.task.name)
    if found is None or spec.train is None or not spec.digest:
        return message
    try:
        value = OmegaConf.select(load_yaml(spec.train), found[1])
    except (OSError, ValueError):  # it was changed since the run began
        return message
    own = value is not None and value == OmegaConf.select(cfg.train, found[1])
    return f"{spec.train}: {message}" if own else message


def with_defaults(cfg: DictConfig) -> DictConfig:
    """Return a run's config with the defaults of keys of cfg/config.yaml that are newer than the run."""
    defaults = OmegaConf.load(project_folder("cfg") / "config.yaml")
    merged = OmegaConf.merge({key: value for key, value in defaults.items() if key != "defaults"}, cfg)
    assert isinstance(merged, DictConfig)
    return merged


def _compose(task: str, overrides: Sequence[str]) -> DictConfig:
    folder, spec = project_folder("cfg"), find_spec(task)
    files = [*sorted(folder.rglob("*.yaml")), *filter(None, (spec.config, spec.train))]
    state = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in map(Path, files)]
    return copy.deepcopy(_composed(task, tuple(overrides), folder, (spec.source, spec.digest, *state)))


@functools.lru_cache(maxsize=64)
def _composed(task: str, overrides: tuple[str, ...], folder: Path, state: tuple[Any, ...]) -> DictConfig:
    """Compose a config; Hydra takes 60 ms, and a run composes the same config several times.

    ``state`` is what the result depends on in addition: the files.
    """
    with initialize_config_dir(config_dir=str(folder), version_base="1.3"):
        return compose(config_name="config", overrides=[f"task={task}", *overrides])


def _explain(error: Exception, task: str, overrides: Sequence[str]) -> str:
    """Convert Hydra's message about an override to one that names the key and its near matches."""
    found = re.search(r"Could not override '([^']+)'", str(error))
    if not found:
        return f"cannot read the overrides {' '.join(overrides)}: {str(error).splitlines()[0]}"
    key = found.group(1)
    spec = find_spec(task)
    known = [*config_keys(_compose(task, ())), *(f"train.{optional}" for optional in OPTIONAL_TRAIN_KEYS)]
    known = list(dict.fromkeys([*known, *(f"task.{key}" for key in used_keys(spec.task_class))]))
    files = f"cfg/config.yaml, cfg/task/{task}.yaml and cfg/train/{task}PPO.yaml"
    if spec.digest:
        files = f"cfg/config.yaml, {spec.config} and {spec.train or BASE_TRAIN}"
    same = [name for name in known if name.endswith(f".{key}")]  # only the last part of the key was given
    hint = f" (did you mean {' or '.join(same)}?)" if same else near_matches(key, known)
    return f"unknown key '{key}'{hint}; the keys are those of {files}"


def config_keys(cfg: DictConfig, prefix: str = "") -> list[str]:
    """Return all keys of a config in dotted form, leaves and branches."""
    keys: list[str] = []
    for key, value in cfg.items():
        name = f"{prefix}{key}"
        keys.append(name)
        if isinstance(value, DictConfig):
            keys.extend(config_keys(value, f"{name}."))
    return keys
