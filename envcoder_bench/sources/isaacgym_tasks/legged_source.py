"""LeggedRobots: those that legged_gym registers, and those of a file with their config class."""

import copy
import importlib
import inspect
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.sources.isaacgym_tasks import CONFIG_MARK
from envcoder_bench.sources.isaacgym_tasks.importing import (
    checkout,
    folder_with,
    fork_package,
    isaac_imports,
    one_line,
    pick,
)
from envcoder_bench.sources.isaacgym_tasks.source import Config, Source, config_file, read_yaml

log = logging.getLogger(__name__)


def legged_gym_source(address: str, name: str) -> Source:
    """Return a task that legged_gym, or a fork of it, registers; a fork's package may have another name.

    A YAML after the name sets values of its config, and adds those that a script of the fork sets.
    """
    name, _, yaml = name.partition(CONFIG_MARK)
    path = os.environ.get("LEGGED_GYM_PATH", "")
    fork = fork_package(Path(path)) if path and folder_with(Path(path), "legged_gym") is None else None
    package = fork or "legged_gym"
    folder = checkout(package, "LEGGED_GYM_PATH", address)
    folders = () if folder is None else (folder,)
    with isaac_imports(*folders) as printed, settings_kept():
        try:
            importlib.import_module(f"{package}.envs")  # registers the tasks; its circular imports require it first
            registry: Any = _module(package, "task_registry").task_registry
        except (Exception, SystemExit) as error:
            hint = ""
            if (
                folder is not None
                and isinstance(error, ModuleNotFoundError)
                and (folder / package / str(error.name)).is_dir()
            ):
                hint = f"; {folder / package} is not a package: name the file of a task, --task FILE.py:CLASS"
            reason = one_line(error, printed=printed.getvalue())
            raise ValueError(f"--task {address}: {package} cannot be imported: {reason}{hint}") from error
        if not registry.task_classes:
            raise ValueError(
                f"--task {address}: {package} registers no task when it is imported, but in a function that its script"
                " calls: give --task FILE.py:CLASS, a file that defines or imports the task's class and its config"
            )
        task_class = pick(registry.task_classes, name, package)
        parameters = inspect.signature(task_class).parameters
        if "gym" in parameters:  # it gets a simulation, which its registry makes
            raise ValueError(
                f"--task {address}: {task_class.__name__}({', '.join(parameters)}) is not constructed as legged_gym's"
                " tasks are (cfg, sim_params, physics_engine, sim_device, headless); run its script by python -m"
                " isaacgym_mujoco SCRIPT"
            )
        defaults = registry.env_cfgs[name]
        if yaml:
            defaults = _instance(type(defaults), defaults)
            values = read_yaml(config_file(Path(package), name, yaml))
            values.pop("task", None)  # the task's name, in forks that use Hydra
            added = _update(defaults, values)
            if added:
                text = ", ".join(added[:5]) + (f" and {len(added) - 5} more" if len(added) > 5 else "")
                log.warning("%s: keys that the config of %s does not have were added: %s", yaml, name, text)
        config = _plain(class_to_dict(defaults))
        learning = getattr(registry, "train_cfgs", {}).get(name)  # some forks register none
        train = _plain(class_to_dict(learning)) if learning is not None else {}
        file = Path(inspect.getfile(task_class)).resolve()
    construct = _legged(task_class, defaults)
    return Source(address, f"legged_gym_{name}", task_class, config, rsl_rl_train(train), file, folders, construct)


def legged_file_source(
    path: Path, name: str, task_class: type, module: Any, config: str | None, folders: tuple[Path, ...]
) -> Source:
    """Return a LeggedRobot of a file, with the config class ``<name>Cfg``, or the only one that the file defines."""
    classes = {key: cls for key, cls in vars(module).items() if isinstance(cls, type) and hasattr(cls, "init_state")}
    with_asset = [key for key, cls in classes.items() if getattr(getattr(cls, "asset", None), "file", "")]
    configs = {key: classes[key] for key in with_asset}  # not the base
    own_names = [key for key, cls in configs.items() if cls.__module__ == module.__name__] or list(configs)
    chosen = f"{name}Cfg" if f"{name}Cfg" in configs else own_names[0] if len(own_names) == 1 else None
    if chosen is None:
        raise ValueError(
            f"--task {path}:{name} needs its config in the same file, defined or imported: a class named {name}Cfg; a"
            " task that its checkout registers is --task legged_gym:NAME with LEGGED_GYM_PATH=CHECKOUT"
        )
    # its config as numbers, and how a task is made of it
    defaults = configs[chosen]()
    if config is not None:
        _update(defaults, read_yaml(config_file(path, name, config)))
    values, mark = _plain(class_to_dict(defaults)), "" if config is None else CONFIG_MARK + config
    construct = _legged(task_class, defaults)
    return Source(f"{path}:{name}{mark}", name, task_class, values, None, path, folders, construct)


def _module(package: str, name: str) -> Any:
    """Import a module of a package's ``utils``, which a fork may have given another name."""
    try:
        return importlib.import_module(f"{package}.utils.{name}")
    except ModuleNotFoundError as error:
        folders = importlib.import_module(package).__path__ if error.name == f"{package}.utils" else ()
        files = [file for folder in folders for file in sorted(Path(folder).glob(f"*/{name}.py"))]
        if not files:
            raise
        return importlib.import_module(f"{package}.{files[0].parent.name}.{name}")


def _legged(task_class: Any, defaults: Any) -> Callable[[Config, int, str], Any]:
    """Return a function that constructs a LeggedRobot from a config, a number of environments and a torch device."""

    def construct(config: Config, num_envs: int, device: str) -> Any:
        from isaacgym import gymapi, gymutil  # type: ignore[import-not-found]

        env_cfg = _instance(type(defaults), defaults)
        _update(env_cfg, config)
        env_cfg.env.num_envs = num_envs
        params = gymapi.SimParams()
        params.use_gpu_pipeline = params.physx.use_gpu = device.startswith("cuda")
        gymutil.parse_sim_config(class_to_dict(env_cfg.sim), params)
        return task_class(env_cfg, params, gymapi.SIM_PHYSX, device, True)

    return construct


def class_to_dict(node: Any) -> Any:
    """Convert a config of nested classes to dicts, as the function of legged_gym with this name does."""
    if isinstance(node, list):
        return [class_to_dict(entry) for entry in node]
    if not hasattr(node, "__dict__") or hasattr(node, "tolist"):
        return node
    return {key: class_to_dict(getattr(node, key)) for key in dir(node) if not key.startswith("_")}


def _instance(cls: type, defaults: Any) -> Any:
    """Copy a config of nested classes, which a task may change."""
    config = copy.copy(defaults)
    for key in dir(defaults):
        value = getattr(defaults, key)
        if key.startswith("_") or callable(value):
            continue
        setattr(config, key, _instance(type(value), value) if hasattr(value, "__dict__") else copy.deepcopy(value))
    return config


def _update(target: Any, config: Config) -> list[str]:
    """Set the values of a config in nested objects, except those that are equal, which keep their types.

    Returns:
        The keys that the objects do not have, which are added.
    """
    added: list[str] = []
    for key, value in config.items():
        node = getattr(target, key, None)
        if isinstance(value, dict) and (hasattr(node, "__dict__") or not hasattr(target, key)):
            if node is None:
                node = _Section()
                setattr(target, key, node)
            added += [f"{key}.{name}" for name in _update(node, value)]
        elif key != "name" and not (hasattr(target, key) and _plain(node) == value):
            added += [] if hasattr(target, key) else [key]
            setattr(target, key, value)
    return added


class _Section:
    """A part of a config that its class does not have."""


def _plain(value: Any) -> Any:
    """Convert a config to types that YAML can hold; arrays and tensors become lists."""
    if isinstance(value, dict):
        return {str(key): _plain(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    if hasattr(value, "tolist"):
        value = value.tolist()
        return _plain(value) if isinstance(value, list) else value
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def rsl_rl_train(train: Config) -> Config:
    """Convert legged_gym's PPO config to an rl_games YAML, for the settings that both have."""
    algorithm, policy, runner = (train.get(key, {}) for key in ("algorithm", "policy", "runner"))
    names = {
        "gamma": "gamma", "lam": "tau", "learning_rate": "learning_rate", "clip_param": "e_clip",
        "entropy_coef": "entropy_coef", "value_loss_coef": "critic_coef", "desired_kl": "kl_threshold",
        "num_learning_epochs": "mini_epochs", "max_grad_norm": "grad_norm",
    }  # fmt: skip
    config = {ours: algorithm[key] for key, ours in names.items() if key in algorithm}
    if "num_steps_per_env" in runner:
        config["horizon_length"] = runner["num_steps_per_env"]
    params: Config = {"config": config}
    if policy.get("actor_hidden_dims"):
        layers: Config = {"units": list(policy["actor_hidden_dims"])}
        if policy.get("activation"):
            name = policy["activation"]
            layers["activation"] = "swish" if name == "silu" else name  # rl_games' name of it
        params["network"] = {"mlp": layers}
    return {"params": params}
