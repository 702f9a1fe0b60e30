"""Where an Isaac Gym task comes from: its class, its YAML, and how it is constructed."""

import contextlib
import copy
import inspect
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from envcoder_bench.core.errors import UserError, message_line
from envcoder_bench.core.settings import plain
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.core.yaml_files import faults_of, unresolved
from envcoder_bench.sources.isaacgym_tasks.draws import Draws
from envcoder_bench.sources.isaacgym_tasks.gym_proxy import GymProxy, proxied
from envcoder_bench.sources.isaacgym_tasks.importing import isaac_imports, one_line
from envcoder_bench.sources.isaacgym_tasks.random_params import METHOD, PARAMS, randomizes
from isaacgym_mujoco.old_code import old_calls

Config = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A task's class and config, and how it is constructed.

    Attributes:
        address: what ``--task`` names it by.
        name: the name of the task in a run.
        task_class: its class.
        config: its YAML's content.
        train: the content of its rl_games YAML; None if it has none.
        file: where the class is defined.
        folders: where its imports are found.
        construct: makes the task from a config, a number of environments and a torch device.
        around: a context in which its code runs.
    """

    address: str
    name: str
    task_class: type
    config: Config
    train: Config | None
    file: Path
    folders: tuple[Path, ...]
    construct: Callable[[Config, int, str], Any]
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext

    def make(self, config: Config, num_envs: int, device: str) -> Any:
        """Construct the task. Any exception of its code is raised as a ValueError of one line with the place."""
        with isaac_imports(*self.folders) as printed, settings_kept(), self.around():
            _forget_simulation(self.task_class)
            try:
                return self.construct(copy.deepcopy(config), num_envs, device)
            except (Exception, SystemExit) as error:
                reason = one_line(error, self.file.parent, printed.getvalue())
                raise ValueError(f"{self.address} cannot be built: {reason}") from error

    @contextlib.contextmanager
    def running_code(self) -> Iterator[None]:
        """Provide what old code needs; convert any exception of the task's code to a UserError of one line."""
        try:
            with old_calls():
                yield
        except Exception as error:
            raise UserError(f"{self.address}: {one_line(error, self.file.parent)}") from error


def make_isaac(source: Source, cfg: Mapping[str, Any], num_envs: int, device: str) -> tuple[Any, GymProxy]:
    """Construct a task from its config, with a proxy as its gym. Raises ValueError."""
    config = {key: value for key, value in plain(cfg).items() if key != "name" or "name" in source.config}
    if "name" in config:
        config["name"] = source.config["name"]
    draws, switched_off = Draws(num_envs, torch.device(device)), contextlib.nullcontext()
    if randomizes(config):
        switched_off = _without_randomization(source, config)
    with isaac_imports(*source.folders), proxied() as proxies, draws.call("make", None, True), switched_off:
        task = source.make(config, num_envs, device)
    if not proxies:
        raise ValueError(f"{source.address} does not acquire a gym: it is not a task of Isaac Gym")
    # the environment randomizes in its place, by what the task would have got
    if randomizes(config):
        setattr(task, METHOD, _nothing)
        if not hasattr(task, PARAMS):
            setattr(task, PARAMS, config["task"].get(PARAMS))
    return task, proxies[0]


@contextlib.contextmanager
def _without_randomization(source: Source, config: Mapping[str, Any]) -> Iterator[None]:
    """Disable the task's own randomization inside the block, because its draws would mix candidates.

    Its argument is made an attribute of the class, because HumanoidAMP reads it and does not set it.

    Raises:
        ValueError: the class does not randomize as IsaacGymEnvs' VecTask does.
    """
    # the one class that randomizes
    owners = [cls for cls in source.task_class.__mro__ if METHOD in vars(cls)]
    taken = list(inspect.signature(getattr(source.task_class, METHOD)).parameters)[1:] if owners else []
    if len(owners) != 1 or taken != ["dr_params"]:
        names = ", ".join(cls.__name__ for cls in owners) or "no class"
        raise ValueError(
            f"{source.address}: task.randomize is True, which needs the method {METHOD}(dr_params) of IsaacGymEnvs'"
            f" VecTask, and here {names} defines {METHOD}({', '.join(taken)}): give task.task.randomize=false"
        )
    owner, method = owners[0], vars(owners[0])[METHOD]
    # without it while the task is constructed; its argument is an attribute as long
    setattr(owner, METHOD, _nothing)
    missing = not hasattr(source.task_class, PARAMS)
    if missing:
        setattr(owner, PARAMS, config["task"].get(PARAMS))
    try:
        yield
    finally:
        setattr(owner, METHOD, method)
        if missing:
            delattr(owner, PARAMS)


def _nothing(*_: Any) -> None:
    """Replace ``apply_randomizations``: ``Randomizer`` does its work."""


@contextlib.contextmanager
def temporary_folder() -> Iterator[None]:
    """Work in a temporary folder: Quadcopter, Ingenuity and BallBalance write their models to the current one.

    It has links to the folders of the current one, from which forks read data.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for path in before.iterdir():
            if path.is_dir():
                Path(folder, path.name).symlink_to(path)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _forget_simulation(task_class: type) -> None:
    """Clear IsaacGymEnvs' global of the simulation, which allows only one per process."""
    for cls in task_class.__mro__:
        module = sys.modules.get(cls.__module__)
        if module is not None and hasattr(module, "EXISTING_SIM"):
            module.EXISTING_SIM = None  # type: ignore[attr-defined]


def config_file(path: Path, name: str, config: str | None) -> Path:
    """Return the YAML of the class ``name`` in ``path``: ``config`` if given, else one of the usual places.

    Raises:
        ValueError: there is none.
    """
    if config is not None:
        file = Path(config).absolute()
        if not file.is_file():
            raise ValueError(f"--task {path}:{name}: {file} is not a file: give the task's YAML")
        return file
    tried = [path.with_suffix(".yaml"), path.parent / f"{name}.yaml", path.parent.parent / "cfg/task" / f"{name}.yaml"]
    existing = next((file for file in tried if file.is_file()), None)
    if existing is None:
        places = ", ".join(map(str, tried))
        raise ValueError(f"--task {path}:{name} has no YAML: give --task_config FILE (looked for {places})")
    return existing


def group_weights(config: Config) -> list[float]:
    """Return the weights of a task's groups of rewards, if its reward is a column for each; HoST names them so."""
    rewards = config.get("rewards")
    return [float(x) for x in rewards.get("reward_group_weights") or ()] if isinstance(rewards, dict) else []


def read_yaml(file: Path) -> Config:
    """Read a task's YAML; replace references to the main config by the values of ``cfg/config.yaml``.

    That is the file above the folder ``task`` of the YAML; without it, references get IsaacGymEnvs' defaults. Files in
    the YAML's ``defaults`` are merged, from its folder and those in it.

    Raises:
        ValueError: it is not a YAML with keys and values, or a file of ``defaults`` is missing.
    """
    merged, main = _merged(file), _main_config(file)
    with faults_of(file):
        replaced = OmegaConf.create(_without_references(merged, main))
        content: Any = OmegaConf.to_container(replaced, resolve=True)
    if not isinstance(content, dict) or not content:
        raise ValueError(f"{file} is not a YAML with keys and values")
    return content


def _merged(file: Path) -> Any:
    """Return the content of a YAML; one with a list of ``defaults`` is composed by Hydra."""
    with faults_of(file):
        content: Any = OmegaConf.to_container(unresolved(file.read_text(encoding="utf-8")))
    if not isinstance(content, dict) or not isinstance(content.get("defaults"), list):
        return content  # a task may have a key of that name
    above = any(isinstance(name, str) and ".." in Path(name).parts for name in content["defaults"])
    if above or file.suffix != ".yaml":  # which Hydra does not find
        return _merged_by_path(file, content)
    from hydra import compose, initialize_config_dir

    try:
        with warnings.catch_warnings(action="ignore"), initialize_config_dir(str(file.parent), version_base="1.3"):
            composed = OmegaConf.to_container(compose(config_name=file.stem))
    except Exception as error:
        raise ValueError(f"{file}: its defaults cannot be composed: {message_line(error)}") from error
    if _has_nameless(composed):  # how Hydra places files of the folders above
        raise ValueError(f"{file}: its defaults cannot be composed: a file in them has defaults with '..'")
    return composed


def _merged_by_path(file: Path, content: Config) -> Any:
    """Return the content of a YAML, merged with the files in its ``defaults``, which Hydra does not find above it."""
    names = content.pop("defaults")
    merged = OmegaConf.create({})
    for name in names if "_self_" in names else [*names, "_self_"]:
        parent = file.parent / f"{name}.yaml"
        if name != "_self_" and not parent.is_file():
            raise ValueError(f"{file}: its defaults name {name}, and {parent} is not a file")
        merged = OmegaConf.merge(merged, OmegaConf.create(content if name == "_self_" else _merged(parent)))
    return OmegaConf.to_container(merged)


def _has_nameless(value: Any) -> bool:
    return isinstance(value, dict) and ("" in value or any(map(_has_nameless, value.values())))


_MAIN_CONFIG = {
    "physics_engine": "physx", "num_threads": 4, "solver_type": 1, "num_subscenes": 4, "seed": 42,
}  # fmt: skip
_HERE = {"pipeline": False, "sim_device": "cpu"}  # whatever the file says: the run chooses the device


def _main_config(file: Path) -> Config:
    """Return the values of the main config of a task's YAML, with IsaacGymEnvs' defaults."""
    path = file.parent.parent / "config.yaml"
    content: Any = {}
    if file.parent.name == "task" and path.is_file():
        with faults_of(path):
            content = OmegaConf.to_container(OmegaConf.load(path))
    items = content.items() if isinstance(content, dict) else ()
    values = {key: x for key, x in items if isinstance(x, (str, int, float)) and "${" not in str(x)}
    return {**_MAIN_CONFIG, **values, **_HERE}


def _without_references(value: Any, main: Config) -> Any:
    if isinstance(value, dict):
        return {key: _without_references(x, main) for key, x in value.items()}
    if isinstance(value, list):
        return [_without_references(x, main) for x in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    value = value.replace("${hydra:runtime.cwd}", str(Path.cwd()))
    match = re.fullmatch(r"\$\{resolve_default:([^,{}]*),.*\}", value)
    if match:
        return OmegaConf.create(f"x: {match.group(1)}").x
    # a key of the main config has nothing but dots before it; resolvers of IsaacGymEnvs ask for these ones, too
    match = re.fullmatch(r"\$\{\.{2,}(\w+)\}", value)
    if match and match.group(1) in main:
        return main[match.group(1)]
    names = (*_MAIN_CONFIG, *_HERE)
    return next((main[name] for name in names if re.search(rf"\.{name}\b", value)), value)
