"""Where an Isaac Gym task comes from: IsaacGymEnvs, legged_gym, or a Python file with its YAML."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.tasks.isaacgym_tasks.addresses import CONFIG_MARK, FILE, ISAACGYMENVS, LEGGED_GYM
from envcoder_bench.tasks.isaacgym_tasks.importing import checkout, isaac_imports, load_file, one_line, pick

Config = Dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A task's class and config, and how it is made.

    Attributes:
        address: what finds it again; ``name``: what it is called here.
        config: its numbers, as its YAML has them; ``train``: those of PPO, an rl_games YAML; None: it brings none.
        file: of the class; ``folders``: where its imports are found.
        construct: makes the task of a config, a number of environments and a torch device.
    """

    address: str
    name: str
    task_class: type
    config: Config
    train: Config | None
    file: Path
    folders: tuple[Path, ...]
    construct: Callable[[Config, int, str], Any]

    def make(self, config: Config, num_envs: int, device: str) -> Any:
        """Build the task. Raises ValueError, in one line with the place, for whatever its code raises."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(isaac_imports(*self.folders))
            stack.enter_context(settings_kept())
            if self.address.startswith(ISAACGYMENVS):
                stack.enter_context(_elsewhere())
            _forget_simulation(self.task_class)
            try:
                return self.construct(copy.deepcopy(config), num_envs, device)
            except Exception as error:
                raise ValueError(f"{self.address} cannot be built: {one_line(error, self.file.parent)}") from error
            except SystemExit as error:
                raise ValueError(f"{self.address} cannot be built: its code called exit({error.code})") from error


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """Work in a folder that is deleted afterwards: Quadcopter, Ingenuity and BallBalance write their models there."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def find_source(task: str) -> Source:
    """Find a task by its address. Raises ValueError: it is not there, or its code or config cannot be loaded."""
    if task.startswith(ISAACGYMENVS):
        return _isaacgymenvs(task, task[len(ISAACGYMENVS) :])
    if task.startswith(LEGGED_GYM):
        return _legged_gym(task, task[len(LEGGED_GYM) :])
    match = FILE.fullmatch(task)
    assert match is not None
    return _file(Path(match["file"]), match["name"], match["config"])


def _isaacgymenvs(address: str, name: str) -> Source:
    folder = checkout("isaacgymenvs", "ISAACGYMENVS_PATH", address)
    folders = () if folder is None else (folder,)
    with isaac_imports(*folders), settings_kept():
        try:
            import isaacgymenvs  # type: ignore[import-not-found]
            from isaacgymenvs.tasks import isaacgym_task_map  # type: ignore[import-not-found]
        except Exception as error:
            raise ValueError(f"--task {address}: isaacgymenvs cannot be imported: {one_line(error)}") from error
        package = Path(str(isaacgymenvs.__file__)).resolve().parent
        configs = {path.stem: path for path in (package / "cfg" / "task").glob("*.yaml")}
        pick(configs, name, "IsaacGymEnvs")
        assets = package.parent / "assets"
        if not assets.is_dir():
            raise ValueError(
                f"--task {address}: {assets} is missing: an installed IsaacGymEnvs has no assets; get a checkout and"
                " name its folder with ISAACGYMENVS_PATH"
            )
        composed = _composed(package / "cfg", name, address)
        made = pick(isaacgym_task_map, str(composed["task"]["name"]), "IsaacGymEnvs")
        task_class = made if isinstance(made, type) else _class_of(made, composed["task"])
        file = Path(inspect.getfile(task_class)).resolve()
    train = composed.get("train")
    title = f"isaacgymenvs_{name}"
    return Source(address, title, task_class, composed["task"], train, file, folders, _vec_task(made))


def _class_of(made: Any, config: Config) -> type:
    """The class behind a function of IsaacGymEnvs' map, which picks one by the config."""
    subtask = str(config.get("env", {}).get("subtask", "")).lower()
    classes = [one for one in vars(inspect.getmodule(made)).values() if isinstance(one, type)]
    arms = "TwoArms" in made.__name__ or "two_arms" in made.__name__
    found = [c for c in classes if c.__name__.lower().endswith(subtask) and ("TwoArms" in c.__name__) == arms]
    return found[0] if found else classes[0]


def _composed(folder: Path, name: str, address: str) -> Config:
    """IsaacGymEnvs' config of a task, without references: Hydra composes it, as for its own ``train.py``."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException

    words = [f"task={name}", "headless=True", "sim_device=cpu", "rl_device=cpu", "pipeline=cpu"]
    if not (folder / "train" / f"{name}PPO.yaml").is_file():
        words.append("~train")
    try:
        with initialize_config_dir(config_dir=str(folder), version_base="1.1"):
            composed = compose(config_name="config", overrides=words)
            task: Any = OmegaConf.to_container(composed.task, resolve=True)
            train: Any = OmegaConf.to_container(composed.train, resolve=True) if "train" in composed else None
            return {"task": task, "train": train}
    except (HydraException, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--task {address}: {folder}/task/{name}.yaml cannot be composed: {reason}") from error


def _vec_task(task_class: Any) -> Callable[[Config, int, str], Any]:
    def construct(config: Config, num_envs: int, device: str) -> Any:
        on_cuda = device.startswith("cuda")
        config.setdefault("env", {})["numEnvs"] = num_envs
        config.setdefault("sim", {})["use_gpu_pipeline"] = on_cuda
        if isinstance(config["sim"].get("physx"), dict):
            config["sim"]["physx"]["use_gpu"] = on_cuda
        config.setdefault("physics_engine", "physx")
        given = {
            **dict.fromkeys(("cfg", "config"), config),
            "rl_device": device,
            "sim_device": device,
            "device_id": int(device.partition(":")[2] or 0),
            "device_type": "cuda" if on_cuda else "cpu",
            "graphics_device_id": -1,
            "headless": True,
            "virtual_screen_capture": False,
            "force_render": False,
        }
        known = inspect.signature(task_class).parameters
        if any(p.kind is p.VAR_KEYWORD or p.kind is p.VAR_POSITIONAL for p in known.values()):
            known = {name: None for name in given if name not in ("config", "device_id", "device_type")}
        return task_class(**{name: value for name, value in given.items() if name in known})

    return construct


def _legged_gym(address: str, name: str) -> Source:
    folder = checkout("legged_gym", "LEGGED_GYM_PATH", address)
    folders = () if folder is None else (folder,)
    with isaac_imports(*folders), settings_kept():
        try:
            importlib.import_module(
                "legged_gym.envs"
            )  # first, for its own imports are circular; it registers the tasks
            from legged_gym.utils import helpers  # type: ignore[import-not-found]
            from legged_gym.utils.task_registry import task_registry  # type: ignore[import-not-found]
        except Exception as error:
            raise ValueError(f"--task {address}: legged_gym cannot be imported: {one_line(error)}") from error
        task_class = pick(task_registry.task_classes, name, "legged_gym")
        defaults = task_registry.env_cfgs[name]
        config = _plain(helpers.class_to_dict(defaults))
        train = _plain(helpers.class_to_dict(task_registry.train_cfgs[name]))
        file = Path(inspect.getfile(task_class)).resolve()
    construct = _legged(task_class, defaults, helpers)
    return Source(address, f"legged_gym_{name}", task_class, config, rsl_rl_train(train), file, folders, construct)


def _legged(task_class: Any, defaults: Any, helpers: Any) -> Callable[[Config, int, str], Any]:
    def construct(config: Config, num_envs: int, device: str) -> Any:
        from isaacgym import gymapi  # type: ignore[import-not-found]

        class Arguments:
            physics_engine, num_threads, subscenes = gymapi.SIM_PHYSX, 0, 0
            use_gpu = use_gpu_pipeline = device.startswith("cuda")
            headless = True

        own = _instance(type(defaults), defaults)
        _update(own, config)
        own.env.num_envs = num_envs
        params = helpers.parse_sim_params(Arguments, {"sim": helpers.class_to_dict(own.sim)})
        return task_class(own, params, gymapi.SIM_PHYSX, device, True)

    return construct


def _instance(cls: type, defaults: Any) -> Any:
    """A copy of a config of nested classes, so that a task's changes reach no other one."""
    made = copy.copy(defaults)
    for key in dir(defaults):
        value = getattr(defaults, key)
        if key.startswith("_") or callable(value):
            continue
        setattr(made, key, _instance(type(value), value) if hasattr(value, "__dict__") else copy.deepcopy(value))
    return made


def _update(own: Any, config: Config) -> None:
    """Put a config's values into nested objects."""
    for key, value in config.items():
        node = getattr(own, key, None)
        if isinstance(value, dict) and hasattr(node, "__dict__"):
            _update(node, value)
        elif key != "name":
            setattr(own, key, value)


def _plain(value: Any) -> Any:
    """As YAML can hold it."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def rsl_rl_train(train: Config) -> Config:
    """An rl_games YAML with what legged_gym's PPO config says, as far as both know it."""
    algorithm, policy, runner = (train.get(key, {}) for key in ("algorithm", "policy", "runner"))
    names = {
        "gamma": "gamma", "lam": "tau", "learning_rate": "learning_rate", "clip_param": "e_clip",
        "entropy_coef": "entropy_coef", "value_loss_coef": "critic_coef", "desired_kl": "kl_threshold",
        "num_learning_epochs": "mini_epochs", "max_grad_norm": "grad_norm",
    }  # fmt: skip
    config = {own: algorithm[key] for key, own in names.items() if key in algorithm}
    if "num_steps_per_env" in runner:
        config["horizon_length"] = runner["num_steps_per_env"]
    params: Config = {"config": config}
    if policy.get("actor_hidden_dims"):
        params["network"] = {"mlp": {"units": list(policy["actor_hidden_dims"])}}
        if policy.get("activation"):
            params["network"]["mlp"]["activation"] = policy["activation"]
    return {"params": params}


def _file(path: Path, name: str, config: str | None) -> Source:
    path = path.absolute()
    if not path.is_file():
        siblings = [one.name for one in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ValueError(f"--task {path}:{name}: there is no such file{near_matches(path.name, siblings)}")
    folders: tuple[Path, ...] = (path.parent,)
    for package, variable in (("isaacgymenvs", "ISAACGYMENVS_PATH"), ("legged_gym", "LEGGED_GYM_PATH")):
        try:
            folder = checkout(package, variable, str(path))
        except ValueError:
            continue  # a file need not use them
        folders += () if folder is None else (folder,)
    with isaac_imports(*folders), settings_kept():
        try:
            module = load_file(path)
        except Exception as error:
            raise ValueError(f"--task {path}:{name}: {one_line(error, path.parent)}") from error
    classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    classes = {key: own for key, own in classes.items() if own.__module__ == module.__name__} or classes
    task_class = pick(classes, name, str(path))
    if not any(hasattr(task_class, method) for method in ("pre_physics_step", "post_physics_step")):
        raise ValueError(
            f"--task {path}:{name}: {name} has neither pre_physics_step nor post_physics_step: it is no task of Isaac"
            " Gym; a task of EnvCoderBench is named module:Class or by its folder"
        )
    if "sim_params" in inspect.signature(task_class).parameters:
        return _legged_file(path, name, task_class, module, config, folders)
    file = _config_file(path, name, config)
    address = f"{path}:{name}{CONFIG_MARK}{file}"
    return Source(address, name, task_class, _read_yaml(file), None, path, folders, _vec_task(task_class))


def _legged_file(
    path: Path, name: str, task_class: type, module: Any, config: str | None, folders: tuple[Path, ...]
) -> Source:
    """A LeggedRobot and, in the same file, its config class: ``<name>Cfg``, or the only one that it defines."""
    found = {key: own for key, own in vars(module).items() if isinstance(own, type) and hasattr(own, "init_state")}
    own = [key for key, cls in found.items() if cls.__module__ == module.__name__] or list(found)
    chosen = f"{name}Cfg" if f"{name}Cfg" in found else own[0] if len(own) == 1 else None
    if chosen is None:
        raise ValueError(f"--task {path}:{name} needs its config in the same file: a class named {name}Cfg")
    with isaac_imports(*folders):
        from legged_gym.utils import helpers  # type: ignore[import-not-found]
    defaults = found[chosen]()
    if config is not None:
        _update(defaults, _read_yaml(_config_file(path, name, config)))
    values, mark = _plain(helpers.class_to_dict(defaults)), "" if config is None else CONFIG_MARK + config
    construct = _legged(task_class, defaults, helpers)
    return Source(f"{path}:{name}{mark}", name, task_class, values, None, path, folders, construct)


def _config_file(path: Path, name: str, config: str | None) -> Path:
    if config is not None:
        file = Path(config).absolute()
        if not file.is_file():
            raise ValueError(f"--task {path}:{name}: {file} is no file: give the task's YAML")
        return file
    tried = [path.with_suffix(".yaml"), path.parent / f"{name}.yaml", path.parent.parent / "cfg/task" / f"{name}.yaml"]
    found = next((file for file in tried if file.is_file()), None)
    if found is None:
        places = ", ".join(map(str, tried))
        raise ValueError(f"--task {path}:{name} has no YAML: give --task_config FILE (there is none of {places})")
    return found


def _read_yaml(file: Path) -> Config:
    """A task's YAML without references; those to IsaacGymEnvs' main config have its defaults."""
    try:
        given = OmegaConf.to_container(OmegaConf.load(file))
        own: Any = OmegaConf.to_container(OmegaConf.create(_without_references(given)), resolve=True)
    except (YAMLError, OmegaConfBaseException, UnicodeError) as error:
        raise ValueError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(own, dict) or not own:
        raise ValueError(f"{file} is no YAML with keys and values")
    return own


_MAIN_CONFIG = {
    "physics_engine": "physx", "num_threads": 4, "solver_type": 1, "num_subscenes": 4, "pipeline": False,
    "sim_device": "cpu", "seed": 42,
}  # fmt: skip


def _without_references(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_references(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_references(one) for one in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    match = re.fullmatch(r"\$\{resolve_default:([^,{}]*),.*\}", value)
    if match:
        return OmegaConf.create(f"x: {match.group(1)}").x
    return next((own for name, own in _MAIN_CONFIG.items() if re.search(rf"\.{name}\b", value)), value)


def _forget_simulation(task_class: type) -> None:
    """IsaacGymEnvs keeps one simulation per process in a global; a run has several."""
    import sys

    for cls in task_class.__mro__:
        module = sys.modules.get(cls.__module__)
        if module is not None and hasattr(module, "EXISTING_SIM"):
            module.EXISTING_SIM = None  # type: ignore[attr-defined]
