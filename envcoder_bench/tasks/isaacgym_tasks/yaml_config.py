"""YAML files of tasks from a Python file."""

import re
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envcoder_bench.tasks.isaacgym_tasks.source import Config


def config_file(path: Path, name: str, config: str | None) -> Path:
    """Return the YAML of the class ``name`` in ``path``: ``config`` if given, else one of the usual places.

    Raises:
        ValueError: there is none.
    """
    if config is not None:
        file = Path(config).absolute()
        if not file.is_file():
            raise ValueError(f"--task {path}:{name}: {file} is no file: give the task's YAML")
        return file
    tried = [path.with_suffix(".yaml"), path.parent / f"{name}.yaml", path.parent.parent / "cfg/task" / f"{name}.yaml"]
    found = next((file for file in tried if file.is_file()), None)
    if found is None:
        places = ", ".join(map(str, tried))
        raise ValueError(f"--task {path}:{name} has no YAML: give --task_config FILE (looked for {places})")
    return found


def read_yaml(file: Path) -> Config:
    """Read a task's YAML; replace references to IsaacGymEnvs' main config by its defaults.

    Files of the same folder in its ``defaults`` are merged, as Hydra does.

    Raises:
        ValueError: it is not a YAML with keys and values, or a file of ``defaults`` is missing.
    """
    try:
        own: Any = OmegaConf.to_container(OmegaConf.create(_without_references(_merged(file))), resolve=True)
    except (YAMLError, OmegaConfBaseException, UnicodeError) as error:
        raise ValueError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(own, dict) or not own:
        raise ValueError(f"{file} is no YAML with keys and values")
    return own


def _merged(file: Path) -> Any:
    """Return the content of a YAML, merged with the files in its ``defaults``."""
    given: Any = OmegaConf.to_container(OmegaConf.load(file))
    if not isinstance(given, dict) or not isinstance(given.get("defaults"), list):
        return given
    names = given.pop("defaults")
    made = OmegaConf.create({})
    for name in names if "_self_" in names else [*names, "_self_"]:
        own = file.parent / f"{name}.yaml"
        if name != "_self_" and not own.is_file():
            raise ValueError(f"{file}: its defaults name {name}, and {own} is not a file")
        made = OmegaConf.merge(made, OmegaConf.create(given if name == "_self_" else _merged(own)))
    return OmegaConf.to_container(made)


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
