"""Find an Isaac Gym task by its address."""

import inspect
from pathlib import Path

from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.tasks.isaacgym_tasks.addresses import CONFIG_MARK, FILE, ISAACGYMENVS, LEGGED_GYM
from envcoder_bench.tasks.isaacgym_tasks.importing import (
    checkout,
    folder_above,
    isaac_imports,
    load_file,
    one_line,
    package_folders,
    pick,
)
from envcoder_bench.tasks.isaacgym_tasks.legged_source import legged_file_source, legged_gym_source
from envcoder_bench.tasks.isaacgym_tasks.source import Source
from envcoder_bench.tasks.isaacgym_tasks.vec_task_source import isaacgymenvs_source, vec_task
from envcoder_bench.tasks.isaacgym_tasks.yaml_config import config_file, read_yaml


def find_source(task: str) -> Source:
    """Find a task by its address, such as ``isaacgymenvs:Ant``.

    Raises:
        ValueError: there is no such task, or its code or config cannot be loaded.
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
        siblings = [one.name for one in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ValueError(f"--task {path}:{name}: there is no such file{near_matches(path.name, siblings)}")
    folders = package_folders(path)
    for package, variable in (("isaacgymenvs", "ISAACGYMENVS_PATH"), ("legged_gym", "LEGGED_GYM_PATH")):
        try:
            folder = checkout(package, variable, str(path))
        except ValueError:
            continue  # the file may not use the package
        folders += () if folder is None else (folder,)
    module = None
    while module is None:
        with isaac_imports(*folders), settings_kept():
            try:
                module = load_file(path)
            except Exception as error:
                more = folder_above(path, error) if isinstance(error, ModuleNotFoundError) else None
                if more is None or more in folders:
                    raise ValueError(f"--task {path}:{name}: {one_line(error, path.parent)}") from error
                folders += (more,)  # a package of the same checkout
    classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    classes = {key: own for key, own in classes.items() if own.__module__ == module.__name__} or classes
    task_class = pick(classes, name, str(path))
    if not any(hasattr(task_class, method) for method in ("pre_physics_step", "post_physics_step")):
        raise ValueError(
            f"--task {path}:{name}: {name} has neither pre_physics_step nor post_physics_step: it is not a task of"
            " Isaac Gym; a task of EnvCoderBench is named module:Class or by its folder"
        )
    parameters = inspect.signature(task_class).parameters
    if "device_type" in parameters:
        raise ValueError(
            f"--task {path}:{name}: {name}({', '.join(parameters)}) is a task of Isaac Gym before IsaacGymEnvs, as in"
            " ASE, which is not supported: constructors must be those of IsaacGymEnvs' VecTask (cfg, rl_device, ...) or"
            " of a LeggedRobot (cfg, sim_params, physics_engine, sim_device, headless)"
        )
    if "sim_params" in parameters:
        return legged_file_source(path, name, task_class, module, config, folders)
    file = config_file(path, name, config)
    address = f"{path}:{name}{CONFIG_MARK}{file}"
    return Source(address, name, task_class, read_yaml(file), None, path, folders, vec_task(task_class))
