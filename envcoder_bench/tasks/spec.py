"""The class and files of a task, what is derived from them, and their validation."""

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envcoder_bench.core.errors import near_matches
from envcoder_bench.tasks.base import BASELINE_FILES, SPARSE, Field
from envcoder_bench.tasks.sim_task import SimTask

_REQUIRED = ("name", "model", "fitness_meaning", "fields")
_TUPLES = ("dof_names", "body_names", "sensor_names", "site_names", "object_keys", "goal_keys", "kept_keys")
_SUFFIXES = (".py", ".xml", ".yaml", ".yml")
REDUCTIONS = ("mean", "sum")
RESERVED = ("action", "state_dict")  # arguments of candidates' functions: the policy's action, and the whole state
_FILES = re.compile(r"""\b(?:file\w*)\s*=\s*["']([^"']+)["']""")  # of meshes, textures, includes
_FOLDERS = re.compile(r"""\b(?:meshdir|texturedir|assetdir)\s*=\s*["']([^"']+)["']""")


@dataclass(frozen=True)
class TaskSpec:
    """A task's class and files.

    Attributes:
        folder: the folder with the model and the baselines.
        config: the task's YAML.
        train: the YAML of PPO; None if the task has none.
        source: the folder or ``module:Class`` of a task that is neither shipped nor of an installed package.
        digest: digest of its code, model and YAML, for a task from outside the package; else empty.
    """

    folder: Path
    task_class: type[SimTask]
    config: Path
    train: Path | None
    source: str | None = None
    digest: str = ""

    @property
    def name(self) -> str:
        return self.task_class.name

    @property
    def summary(self) -> str:
        """The first line of the class's docstring, or else its name."""
        return next(iter((self.task_class.__doc__ or "").strip().splitlines()), self.task_class.__name__)

    @property
    def address(self) -> str:
        """The value for ``--task``: its name, or its source."""
        return self.source or self.name

    @property
    def model_path(self) -> Path:
        return self.folder / self.task_class.model

    def baseline_path(self, baseline: str) -> Path:
        """Return the candidate file of a baseline: ``human``, ``unshaped``, or, if the task has it, ``sparse``.

        Raises:
            ValueError: the task has no such baseline.
        """
        names = [*BASELINE_FILES, *([SPARSE] if (self.folder / f"{SPARSE}.py").is_file() else [])]
        if baseline not in names:
            hint = near_matches(baseline, names)
            raise ValueError(f"unknown baseline '{baseline}'{hint}; there are {', '.join(names)}")
        return self.folder / f"{baseline}.py"


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


def digest(folder: Path, model: str) -> str:
    """Return a digest of a task's code, YAML and model."""
    files = dict.fromkeys([*task_files(folder), *model_files(folder / model)])
    texts = [(os.path.relpath(path, folder), _digest_of(path, *_version(path))) for path in files]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


def _version(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=1000)
def _digest_of(path: Path, _modified: int, _size: int) -> str:
    """Return the digest of a file; meshes can be large, and a task is looked up many times."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_class(task_class: object, where: str) -> None:
    """Check that a class is a complete task.

    Args:
        where: its file, for messages.

    Raises:
        ValueError: it is not; the message says what to change.
    """
    if not (isinstance(task_class, type) and issubclass(task_class, SimTask)):
        shown = getattr(task_class, "__name__", repr(task_class))
        raise ValueError(f"{where}: {shown} is not a task: derive it from envcoder_bench.tasks.SimTask")
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
        if isinstance(value, str) or not all(isinstance(one, str) for one in value):
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
