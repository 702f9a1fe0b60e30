"""Tasks of a class with a Simulator: their specs, files and digests, and the validation of both."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.files import digest, file_digest
from envcoder_bench.sim import make_simulator
from envcoder_bench.tasks.base import BASELINE_FILES, Field
from envcoder_bench.tasks.sim_task import (
    SimTask,
    check_config,
    control_timing,
    engine_options,
    ignored_keys,
    read,
    used_keys,
    yaml_file,
)
from envcoder_bench.tasks.spec import Can, TaskSpec
from envcoder_bench.tasks.task_code import check_default_state, task_code

_REQUIRED = ("name", "model", "fitness_meaning", "fields")
_TUPLES = ("dof_names", "body_names", "sensor_names", "site_names", "object_keys", "goal_keys", "kept_keys")
_SUFFIXES = (".py", ".xml", ".yaml", ".yml")
REDUCTIONS = ("mean", "sum")
RESERVED = ("action", "state_dict")  # arguments of candidates' functions: the policy's action, and the whole state
_FILES = re.compile(r"""\b(?:file\w*)\s*=\s*["']([^"']+)["']""")  # files of meshes, textures, includes
_FOLDERS = re.compile(r"""\b(?:meshdir|texturedir|assetdir)\s*=\s*["']([^"']+)["']""")


def sim_spec(
    task_class: type[SimTask],
    folder: Path,
    config: Path,
    train: Path | None,
    source: str | None = None,
    digest: str = "",
) -> TaskSpec:
    """Return the spec of a class whose model and baselines are in ``folder``; the other arguments are the spec's."""
    document = (task_class.__doc__ or "").strip().splitlines()
    always = {Can.CONTACTS}  # need not be asked for
    can = frozenset(Can) - always - ({Can.REGROUPS} if not task_class.regroups else set())
    return TaskSpec(
        name=task_class.name,
        folder=folder,
        config=config,
        make=functools.partial(_make, task_class, folder),
        train=train,
        source=source,
        digest=digest,
        summary=document[0] if document else task_class.__name__,
        fitness_meaning=task_class.fitness_meaning,
        fitness_bounds=task_class.fitness_bounds,
        can=can,
        config_keys=used_keys(task_class),
        ignored_keys=ignored_keys(task_class),
        only=task_class.only,
        model_path=folder / task_class.model,
        ground=task_class.ground,
    )


def _make(
    task_class: type[SimTask], folder: Path, cfg: Mapping[str, Any], num_envs: int, sim: str, device: str
) -> SimTask:
    """Build a task and its simulation.

    Raises ValueError for an unknown simulator, or an unknown or missing key of ``cfg``.
    """
    check_config(cfg, used_keys(task_class), ignored_keys(task_class))
    dt, substeps = control_timing(cfg)
    control = read(cfg, "env").get("control", {})
    simulator = make_simulator(
        sim,
        folder / task_class.model,
        num_envs,
        dt,
        substeps,
        device,
        stiffness=control.get("stiffness"),
        damping=control.get("damping"),
        options=engine_options(cfg),
        ground=task_class.ground(cfg),
    )
    with task_code(folder):
        task = task_class(cfg, simulator)
        check_default_state(task)
    if task.max_episode_length < 2:
        raise ValueError(f"{yaml_file(cfg)}: an episode must last at least 2 steps, got {task.max_episode_length}")
    return task


def task_files(folder: Path) -> list[Path]:
    """Return code, model and YAML files of a task's folder and of its packages, subfolders with an ``__init__.py``."""
    files = [path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file()]
    packages = [path for path in folder.iterdir() if (path / "__init__.py").is_file()]
    return sorted(files + [file for package in packages for file in task_files(package)])


def model_files(model: Path) -> list[Path]:
    """Return a model's file and those to which it refers, in files that it includes, too: meshes, textures."""
    xmls: dict[Path, None] = {}
    todo, names, folders = [model], [], [""]
    while todo:
        path = todo.pop()
        if path in xmls or not path.is_file():
            continue
        xmls[path] = None
        text = path.read_text(encoding="utf-8", errors="replace")
        named = _FILES.findall(text)
        names += named
        folders += _FOLDERS.findall(text)
        todo += [parent / name for name in named if name.endswith(".xml") for parent in (path.parent, model.parent)]
    # which folder a name belongs to is up to MuJoCo; a file too many does no harm
    places = {xml.parent / folder for xml in xmls for folder in folders}
    files = {Path(os.path.normpath(parent / name)) for name in names for parent in places}
    return sorted({*xmls, *(path for path in files if path.is_file())})


def task_digest(folder: Path, model: Path) -> str:
    """Return a digest of a task's code, YAML and model."""
    files = dict.fromkeys([*task_files(folder), *model_files(model)])
    texts = [(os.path.relpath(path, folder), _digest_of(path, *_version(path))) for path in files]
    return digest(repr(texts))[:16]


def _version(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=1000)
def _digest_of(path: Path, _modified: int, _size: int) -> str:
    """Return the digest of a file; meshes can be large, and a task is looked up many times."""
    return file_digest(path)


def is_task_class(value: object) -> TypeGuard[type[SimTask]]:
    """Return whether a value is a class of tasks with a Simulator."""
    return isinstance(value, type) and issubclass(value, SimTask)


def check_class(task_class: object, where: str) -> None:
    """Check that a class is a complete task.

    Args:
        where: its file, for messages.

    Raises:
        ValueError: it is not; the message says what to change.
    """
    if not is_task_class(task_class):
        name = getattr(task_class, "__name__", repr(task_class))
        raise ValueError(f"{where}: {name} is not a task: derive it from envcoder_bench.tasks.SimTask")
    title = f"{where}: the class {task_class.__name__}"
    faults = list(_class_faults(task_class, title))
    if faults:
        raise ValueError("; ".join(faults))


def _class_faults(task_class: type[SimTask], title: str) -> Iterator[str]:
    """Yield what is missing or invalid in a class."""
    # required attributes: without them nothing else can be examined
    missing = [name for name in _REQUIRED if not hasattr(task_class, name)]
    if missing:
        yield f"{title} lacks {', '.join(missing)}: see docs/add_a_task.md"
        return
    abstract = sorted(getattr(task_class, "__abstractmethods__", ()))
    if abstract:
        yield f"{title} does not define {', '.join(abstract)}"
    if not (isinstance(task_class.name, str) and task_class.name.isidentifier()):
        yield f"{title}: its name must be letters, digits and _, such as Pendulum, not {task_class.name!r}"
    for name in _TUPLES:
        value = getattr(task_class, name)
        if isinstance(value, str) or not all(isinstance(x, str) for x in value):
            yield f'{title}: {name} must be a tuple of names, such as ("hinge",), not {value!r}'
    if task_class.fitness_reduction not in REDUCTIONS:
        yield f"{title}: fitness_reduction is {task_class.fitness_reduction!r}; it must be 'mean' or 'sum'"
    bounds = task_class.fitness_bounds
    try:
        low, high = map(float, bounds)
    except (TypeError, ValueError):
        low, high = 0.0, 1.0
        yield f"{title}: fitness_bounds must be two numbers, such as (0.0, 1.0), not {bounds!r}"
    if not low < high:
        yield f"{title}: fitness_bounds is ({low}, {high}): the first number must be the smaller one"
    # keys of the state
    fields = task_class.fields
    if not hasattr(fields, "items") or not all(isinstance(field, Field) for field in fields.values()):
        yield f"{title}: fields must be a dict of envcoder_bench.tasks.Field by key"
        return
    for name in ("object_keys", "goal_keys", "kept_keys"):
        for key in getattr(task_class, name):
            if key not in fields:
                hint = near_matches(key, fields)
                yield f"{title}: {name} has '{key}', which fields does not declare{hint}"
    for key in RESERVED:
        if key in fields:
            yield f"{title}: fields declares '{key}', which candidates' arguments have another meaning for"
    for key in ("dof_pos", "actions", "progress_buf"):
        if key not in fields:
            yield f"{title}: fields must declare '{key}'"


def check_files(spec: TaskSpec) -> None:
    """Raise ValueError for a missing model or baseline."""
    files = {
        spec.model_path: "the model",
        **{spec.folder / f"{name}.py": f"the baseline {name}" for name in BASELINE_FILES},
    }
    for path, what in files.items():
        if not path.is_file():
            raise ValueError(f"{spec.name}: {path} is missing: {what} of the task, see docs/add_a_task.md")
