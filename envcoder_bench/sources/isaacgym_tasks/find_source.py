"""Find an Isaac Gym task by its address: a VecTask of IsaacGymEnvs, or a class of a Python file."""

import contextlib
import copy
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envcoder_bench.core.errors import message_line, near_matches
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.sources.isaacgym_tasks import CONFIG_MARK, FILE, ISAACGYMENVS, LEGGED_GYM
from envcoder_bench.sources.isaacgym_tasks.importing import (
    checkout,
    folder_above,
    isaac_imports,
    load_file,
    one_line,
    package_folders,
    pick,
)
from envcoder_bench.sources.isaacgym_tasks.legged_source import legged_file_source, legged_gym_source
from envcoder_bench.sources.isaacgym_tasks.source import Config, Source, config_file, read_yaml, temporary_folder


def find_source(task: str) -> Source:
    """Find a task by its address, such as ``isaacgymenvs:Ant``.

    Raises:
        ValueError: the task does not exist, or its code or config cannot be loaded.
    """
    if task.startswith(ISAACGYMENVS):
        return isaacgymenvs_source(task, task[len(ISAACGYMENVS) :])
    if task.startswith(LEGGED_GYM):
        return legged_gym_source(task, task[len(LEGGED_GYM) :])
    match = FILE.fullmatch(task)
    assert match is not None
    return _file_source(Path(match["file"]), match["name"], match["config"])


def _file_source(path: Path, name: str, config: str | None) -> Source:
    """Return the class ``name`` of a Python file, with its YAML or its config class."""
    path = path.absolute()
    if not path.is_file():
        siblings = [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ValueError(f"--task {path}:{name}: the file does not exist{near_matches(path.name, siblings)}")
    folders = package_folders(path)
    for package, variable in (("isaacgymenvs", "ISAACGYMENVS_PATH"), ("legged_gym", "LEGGED_GYM_PATH")):
        try:
            folder = checkout(package, variable, str(path))
        except ValueError:
            continue  # the file may not use the package
        folders += () if folder is None else (folder,)
    module = None
    while module is None:
        with isaac_imports(*folders) as printed, settings_kept():
            try:
                module = load_file(path)
            except (Exception, SystemExit) as error:
                more = folder_above(path, error) if isinstance(error, ModuleNotFoundError) else None
                if more is None or more in folders:
                    reason = one_line(error, path.parent, printed.getvalue())
                    raise ValueError(f"--task {path}:{name}: {reason}") from error
                folders += (more,)  # a package of the same checkout
    classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    classes = {key: cls for key, cls in classes.items() if cls.__module__ == module.__name__} or classes
    task_class = pick(classes, name, str(path))
    if not any(hasattr(task_class, method) for method in ("pre_physics_step", "post_physics_step")):
        raise ValueError(
            f"--task {path}:{name}: {name} has neither pre_physics_step nor post_physics_step: its interface is not"
            " that of IsaacGymEnvs or legged_gym (nor are HumanoidVerse's and MimicKit's); run its script by python -m"
            " isaacgym_mujoco SCRIPT. A task of EnvCoderBench is named module:Class or by its folder"
        )
    parameters = inspect.signature(task_class).parameters
    if "device_type" in parameters and not hasattr(task_class, "reset_idx") and not hasattr(task_class, "reset"):
        raise ValueError(
            f"--task {path}:{name}: {name}({', '.join(parameters)}) is a task of Isaac Gym before IsaacGymEnvs, and has"
            " no method reset(env_ids, ...), by which its episodes begin"
        )
    if "sim_params" in parameters and "device_type" not in parameters:
        return legged_file_source(path, name, task_class, module, config, folders)
    file = config_file(path, name, config)
    address = f"{path}:{name}{CONFIG_MARK}{file}"
    construct = old_task(task_class) if "sim_params" in parameters else vec_task(task_class)
    return Source(address, name, task_class, read_yaml(file), None, path, folders, construct)


def isaacgymenvs_source(address: str, name: str) -> Source:
    """Return the task of the YAML ``cfg/task/<name>.yaml``."""
    folder = checkout("isaacgymenvs", "ISAACGYMENVS_PATH", address)
    folders = () if folder is None else (folder,)
    if folder is not None and not (folder / "isaacgymenvs" / "__init__.py").is_file():
        folders += (folder / "isaacgymenvs",)  # such forks are run from there, and import from there
    with isaac_imports(*folders) as printed, settings_kept():
        try:
            import isaacgymenvs  # type: ignore[import-not-found]
            from isaacgymenvs.tasks import isaacgym_task_map  # type: ignore[import-not-found]
        except (Exception, SystemExit) as error:
            reason = one_line(error, printed=printed.getvalue())
            raise ValueError(f"--task {address}: isaacgymenvs cannot be imported: {reason}") from error
        package = Path(next(iter(isaacgymenvs.__path__))).resolve()
        configs = {path.stem: path for path in (package / "cfg" / "task").glob("*.yaml")}
        yaml = pick(configs, name, "IsaacGymEnvs")
        assets = package.parent / "assets"
        if not assets.is_dir():
            raise ValueError(
                f"--task {address}: {assets} is missing: an installed IsaacGymEnvs has no assets; get a checkout and"
                " name its folder with ISAACGYMENVS_PATH"
            )
        composed = _composed(package / "cfg", name, address)
        if "name" not in composed["task"]:
            raise ValueError(f"--task {address}: {yaml} has no key 'name': it is a part of other tasks' configs")
        factory = pick(isaacgym_task_map, str(composed["task"]["name"]), "IsaacGymEnvs")
        task_class = factory if isinstance(factory, type) else _class_of(factory, composed["task"])
        file = Path(inspect.getfile(task_class)).resolve()
    train = composed.get("train")
    title = f"isaacgymenvs_{name}"

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        with temporary_folder(), _hydra(package / "cfg"):  # Factory's and IndustReal's tasks compose further configs
            yield

    return Source(address, title, task_class, composed["task"], train, file, folders, vec_task(factory), around)


def _class_of(factory: Any, config: Config) -> type:
    """Return the class that a function of IsaacGymEnvs' map chooses by the config."""
    subtask = str(config.get("env", {}).get("subtask", "")).lower()
    classes = [value for value in vars(inspect.getmodule(factory)).values() if isinstance(value, type)]
    arms = "TwoArms" in factory.__name__ or "two_arms" in factory.__name__
    matching = [c for c in classes if c.__name__.lower().endswith(subtask) and ("TwoArms" in c.__name__) == arms]
    return matching[0] if matching else classes[0]


def _hydra(folder: Path) -> Any:
    from hydra import initialize_config_dir

    return initialize_config_dir(config_dir=str(folder), version_base="1.1")


def _composed(folder: Path, name: str, address: str) -> Config:
    """Compose IsaacGymEnvs' config of a task with Hydra, as its ``train.py`` does, and resolve references."""
    from hydra import compose
    from hydra.errors import HydraException

    words = [f"task={name}", "headless=True", "sim_device=cpu", "rl_device=cpu", "pipeline=cpu"]
    # some tasks have no trainer's file, and the shared config asks for one
    if not (folder / "train" / f"{name}PPO.yaml").is_file():
        words.append("~train")
    try:
        with _hydra(folder):
            composed = compose(config_name="config", overrides=words)
            task: Any = OmegaConf.to_container(composed.task, resolve=True)
            train: Any = OmegaConf.to_container(composed.train, resolve=True) if "train" in composed else None
            return {"task": task, "train": train}
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        reason = message_line(error)
        raise ValueError(f"--task {address}: {folder}/task/{name}.yaml cannot be composed: {reason}") from error


def vec_task(task_class: Any) -> Callable[[Config, int, str], Any]:
    """Return a function that constructs a VecTask from a config, a number of environments and a torch device."""

    def construct(config: Config, num_envs: int, device: str) -> Any:
        on_cuda = device.startswith("cuda")
        config.setdefault("env", {})["numEnvs"] = num_envs
        config.setdefault("sim", {})["use_gpu_pipeline"] = on_cuda
        if isinstance(config["sim"].get("physx"), dict):
            config["sim"]["physx"]["use_gpu"] = on_cuda
        config.setdefault("physics_engine", "physx")
        config["rl_device"] = device  # some forks take it from here
        arguments = {
            **dict.fromkeys(("cfg", "config"), config),
            "rl_device": device,
            "sim_device": device if ":" in device else f"{device}:0",  # AllegroKuka reads the number after the colon
            "device_id": int(device.partition(":")[2] or 0),
            "device_type": "cuda" if on_cuda else "cpu",
            "graphics_device_id": -1,
            "headless": True,
            "virtual_screen_capture": False,
            "force_render": False,
        }
        accepted = inspect.signature(task_class).parameters
        if any(p.kind is p.VAR_KEYWORD or p.kind is p.VAR_POSITIONAL for p in accepted.values()):
            accepted = {name: None for name in arguments if name not in ("config", "device_id", "device_type")}
        factory = _with_own_containers(task_class) if isinstance(task_class, type) else task_class
        return factory(**{name: value for name, value in arguments.items() if name in accepted})

    return construct


def old_task(task_class: type) -> Callable[[Config, int, str], Any]:
    """Return a function that constructs a task from before IsaacGymEnvs, such as those of Bi-DexHands.

    Its constructor is (cfg, sim_params, physics_engine, device_type, device_id, headless), with further arguments that
    have defaults or are flags; its episodes begin by ``reset(env_ids, ...)`` in place of ``reset_idx``.
    """
    members: dict[str, Any] = {"__module__": task_class.__module__}
    if not hasattr(task_class, "reset_idx"):
        members["reset_idx"] = task_class.reset  # type: ignore[attr-defined]
        members["reset"] = lambda task, *args, **kwargs: task.reset_idx(*args, **kwargs)  # a driver replaces reset_idx
    task_type = type(task_class)(task_class.__name__, (task_class,), members)

    def construct(config: Config, num_envs: int, device: str) -> Any:
        from isaacgym import gymapi, gymutil  # type: ignore[import-not-found]

        kind, _, number = device.partition(":")
        config.setdefault("env", {})["numEnvs"] = num_envs
        config.update(device_type=kind, device_id=int(number or 0), headless=True, rl_device=device)
        params = gymapi.SimParams()
        params.dt, params.use_gpu_pipeline = 1.0 / 60.0, kind == "cuda"
        params.physx.use_gpu = kind == "cuda"
        gymutil.parse_sim_config(config.get("sim", {}), params)
        task = task_type(config, params, gymapi.SIM_PHYSX, kind, int(number or 0), True)
        task.sim_params = params
        return task

    return construct


def _with_own_containers(task_class: type) -> type:
    """Return a subclass with copies of the lists, dicts and deques that are attributes of the class.

    Trifinger keeps the state of an instance in them, and a run has several instances.
    """
    shared = {name: value for cls in reversed(task_class.__mro__) for name, value in vars(cls).items()}
    containers = {
        name: copy.deepcopy(x) for name, x in shared.items() if isinstance(x, (list, dict, deque)) and name[:2] != "__"
    }
    if not containers:
        return task_class
    return type(task_class)(task_class.__name__, (task_class,), {**containers, "__module__": task_class.__module__})
