"""Tasks in mjlab's registry: their configs, and what is refused by name."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import importlib.util
import os
import pkgutil
import re
import sys
import tomllib
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, is_dataclass
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from envcoder_bench.core.errors import UserError, causes, near_matches
from envcoder_bench.sources.mjlab_tasks import PREFIX
from envcoder_bench.sources.term_tasks import SECTIONS
from envcoder_bench.sources.term_tasks.faults import PatchError
from envcoder_bench.sources.term_tasks.quiet import quiet
from mujoco_batches.compat.warp_start import start_warp

INSTALL = (
    "mjlab is not installed: pip install 'envcoder-bench[mjlab]' && pip install --no-deps mjlab==1.6.0 (docs/mjlab.md)"
)

_broken: dict[str, str] = {}  # installed packages with tasks that cannot be imported, and why
_HERE = Path(__file__).parents[2]  # the folder of this package
_ABOVE = 4  # folders above a module in which its project file may be
_REGISTER = "as docs/mjlab.md shows, register the task"


@dataclass(frozen=True)
class Source:
    """A task of mjlab's registry.

    Attributes:
        address: the value for ``--task``.
        task_id: its registered name.
        package: the package to import for tasks that are not mjlab's; empty for those.
    """

    address: str
    task_id: str
    package: str = ""

    @property
    def name(self) -> str:
        """Its name as an identifier."""
        return "".join(c if c.isalnum() else "_" for c in self.task_id)

    @property
    def version(self) -> str:
        """The versions of the packages that define it."""
        names = ["mjlab", *([self.package.split(".")[0]] if self.package else [])]
        return ", ".join(f"{name} {_version(name)}" for name in names)

    def env_cfg(self) -> Any:
        """Return a new copy of its config, without the terms that are None, which mjlab skips."""
        from mjlab.tasks.registry import load_env_cfg

        cfg = load_env_cfg(self.task_id)
        for section in (*SECTIONS, "metrics"):
            setattr(cfg, section, _without_none(getattr(cfg, section)))
        for group in cfg.observations.values():
            group.terms = _without_none(group.terms)
        cfg.observations = {name: group for name, group in cfg.observations.items() if group.terms}
        return cfg

    def rl_cfg(self) -> Any:
        """Return its config of PPO. Raises ValueError if it is registered without."""
        from mjlab.tasks.registry import load_rl_cfg

        cfg = load_rl_cfg(self.task_id)
        if cfg is None:
            raise ValueError(f"{self.address} has no settings of PPO: {_REGISTER} with an rl_cfg")
        return cfg

    def obs_sets(self, groups: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return which ``groups`` of observations actor and critic read, as rsl_rl does; a critic like the actor, none.

        Raises:
            ValueError: ``rl_cfg.obs_groups`` has a group that the task has not.
        """
        asked = self.rl_cfg().obs_groups
        sets = {}
        for reader in ("actor", "critic"):
            sets[reader] = tuple(asked.get(reader) or (reader if reader in groups else "policy",))
            for group in sets[reader]:
                if group not in groups:
                    what = f"{self.address}: the {reader} reads the observations '{group}' (rl_cfg.obs_groups)"
                    raise ValueError(f"{what}, and the task has {', '.join(groups)}")
        return sets if sets["critic"] != sets["actor"] else {"actor": sets["actor"]}


def find_source(task: str) -> Source:
    """Find a task by ``mjlab:NAME`` or ``mjlab:PACKAGE:NAME``.

    Raises:
        ValueError: mjlab is not installed, or does not have the task.
    """
    package, _, name = task[len(PREFIX) :].rpartition(":")
    try:
        before = list_tasks()
        registered, lacks = list_tasks(package), ""
    except ValueError as error:
        raise ValueError(f"--task {task}: {error}") from None
    inside = pkgutil.iter_modules(getattr(sys.modules.get(package), "__path__", []))
    tasks = [f"{package}.tasks"] if "tasks" in [module.name for module in inside] else []
    for module in (*tasks, *_entry_modules(package)):
        if name not in registered:
            try:
                registered = list_tasks(module)
            except ValueError as error:  # the package may have registered its tasks elsewhere
                lacks = f"; {error}"
    if name not in registered:
        same = [task_id for task_id in registered if task_id.lower() == name.lower()]
        hint = f" (did you mean {same[0]}?)" if same else near_matches(name, registered)
        broken = "".join(f"; the package {name} cannot be loaded: {why}" for name, why in _broken.items())
        is_other = lacks and set(registered) == set(before)  # none of these is of the package that could not register
        there = "" if is_other else f"; mjlab's registry has {', '.join(registered)}"
        raise ValueError(f"unknown task '{task}'{hint}{lacks}{there}{broken}")
    return Source(task, name, package)


def list_tasks(package: str = "") -> list[str]:
    """Import mjlab's tasks, those of installed packages, and a package, and return the registered names.

    Raises:
        ValueError: mjlab or the package cannot be imported.
    """
    os.environ.setdefault("MUJOCO_GL", "disable")  # it renders nothing, and EGL may be absent
    os.environ.setdefault("MJLAB_WARP_QUIET", "1")
    start_warp()
    with quiet():
        try:
            import mjlab.tasks
            from mjlab.tasks.registry import list_tasks

            old = not Path(mjlab.__path__[0], "managers", "metrics_manager.py").is_file()
        except ModuleNotFoundError as error:
            if error.name == "mjlab":
                raise ValueError(INSTALL) from None
            if not (error.name or "").startswith("mjlab."):
                raise ValueError(_incomplete(error)) from None
            old = True  # it lacks a module that 1.2 has
        if old:
            raise ValueError(f"mjlab {_version('mjlab')} is too old: 1.2 or newer is needed, 1.6.0 was tested")
        for point in entry_points(group="mjlab.tasks"):
            try:
                point.load()
            except Exception as error:  # which another task does not need
                _broken[point.name] = described(error, point.module)
        if package:
            here = [os.getcwd(), os.path.join(os.getcwd(), "src")]
            sys.path[:0] = here  # while it is imported, as an installation of a checkout would have it
            try:
                importlib.import_module(package)
            except Exception as error:  # its code may raise anything
                missing = (error.name or "" if isinstance(error, ModuleNotFoundError) else "") + "."
                lost = f"{package}.".startswith(missing)
                reason = f"{error} here, in src/ or installed" if lost else described(error, package)
                raise ValueError(f"{package} cannot be imported: {reason}") from None
            finally:
                for folder in here:
                    with contextlib.suppress(ValueError):  # its code may have taken it out
                        sys.path.remove(folder)
    return list_tasks()


def refuse_unsupported(source: Source, cfg: Any) -> None:
    """Raise ValueError for what a task has and this adapter cannot simulate, by name."""
    from mjlab.sensor.camera_sensor import CameraSensorCfg

    for sensor in cfg.scene.sensors:
        if isinstance(sensor, CameraSensorCfg):
            raise ValueError(f"{source.address} has the camera sensor '{sensor.name}', and cameras are not supported")
    for name, command in cfg.commands.items():
        if getattr(command, "motion_file", None) == "":
            raise ValueError(f"{source.address}: the command '{name}' has no motion file: {_REGISTER} with motion_file")
    if (shared := shared_by_groups(cfg)) is not None:
        section, name, what, remedy = shared
        raise ValueError(f"{source.address}: the {section[:-1]} '{name}' {what}: {_REGISTER} with {remedy}")
    for reader, groups in source.obs_sets(cfg.observations).items():
        for group in groups:
            obs_group = cfg.observations[group]
            terms = [obs_group, *obs_group.terms.values()]
            if any(getattr(x, "history_length", 0) and not x.flatten_history_dim for x in terms):
                key = f"observations['{group}'].flatten_history_dim"
                what = f"{source.address}: {key} is False, and the network of the {reader} reads one row of numbers"
                raise ValueError(f"{what}: {_REGISTER} with flatten_history_dim=True")


def shared_by_groups(cfg: Any) -> tuple[str, str, str, str] | None:
    """Return section and name of what depends on the environments of other groups, what it does, and the remedy."""
    for name, command in cfg.commands.items():
        for key in _adaptive(command):
            what = "samples by the failures of all environments, other candidates' included"
            return "commands", name, f"{what} ({key})", f"{key.rpartition('.')[2]} 'uniform'"
    for name, event in cfg.events.items():
        if event.mode == "interval" and event.is_global_time:
            return "events", name, "has one clock for all environments (is_global_time)", "is_global_time=False"
    return None


def _adaptive(command: Any) -> list[str]:
    """Return the key of a command's adaptive sampling: in a config inside it, as that of a base class is not read."""
    inner = {
        f"{name}.sampling_mode": getattr(value, "sampling_mode", None)
        for name, value in vars(command).items()
        if is_dataclass(value) and hasattr(value, "sampling_mode")
    }
    modes = inner or {"sampling_mode": getattr(command, "sampling_mode", "")}
    return [key for key, mode in modes.items() if mode == "adaptive"]


def _without_none(terms: Mapping[str, Any]) -> dict[str, Any]:
    return {name: term for name, term in terms.items() if term is not None}


def described(error: Exception, package: str = "") -> str:
    """Return the line of a package that raised an error, the error, and whether it may be one of versions."""
    first = [cause for cause in causes(error) if cause.__traceback__ is not None][-1]
    if isinstance(first, (UserError, PatchError)):
        return str(first)
    frames = traceback.extract_tb(first.__traceback__)
    inside = [frame for frame in frames if f"/{package.split('.')[0]}/" in frame.filename and package]
    line = (inside or frames)[-1]
    where, message = f"{line.filename}:{line.lineno}", " ".join(str(first).split())
    if isinstance(first, SyntaxError) and first.filename:
        where, message = f"{first.filename}:{first.lineno}", first.msg
    text = f"{where}: {type(first).__name__}: {message}"
    lost_file = message.startswith("Error:")  # MuJoCo's message, for instance of a mesh
    of_mjlab = "/mjlab/" in frames[-1].filename and not isinstance(first, ModuleNotFoundError) and not lost_file
    of_mjlab |= isinstance(first, (AttributeError, ImportError, TypeError)) and _names_mjlab(first)
    of_mjlab &= bool(package) and not Path(frames[-1].filename).is_relative_to(_HERE)  # a fault of this adapter
    return text + _of_versions(package, isinstance(first, ImportError)) if of_mjlab else text


def _of_versions(package: str, lacks_name: bool) -> str:
    """Return what a message says where the installed mjlab may be one that a package is not for."""
    asked, installed = _asked_version(package), _version("mjlab")
    if asked is not None and installed not in asked:
        return f"; it asks for mjlab{asked}, and {installed} is installed"
    is_exact = any(x.operator == "==" and "*" not in x.version for x in asked or ())
    is_known = asked is not None and (is_exact or not lacks_name)  # ">=1.1" is of the day when it was written
    return "" if is_known else f"; is it for mjlab {installed}?"


def _asked_version(package: str) -> SpecifierSet | None:
    """Return the versions of mjlab that a package, installed or in a checkout, asks for; None if it does not say."""
    top = package.split(".")[0]
    names = packages_distributions().get(top, [])
    texts = [text for name in names for text in requires(name) or ()]
    texts += [x for path in _project_files(top) for x in re.findall(r"""["'](mjlab[^"']*)["']""", _text(path))]
    for text in texts:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(text)
            if requirement.name == "mjlab" and requirement.specifier:
                return requirement.specifier
    return None


def _entry_modules(package: str) -> list[str]:
    """Return the modules that a package in a checkout declares as entry points of mjlab's tasks."""
    modules = []
    for path in _project_files(package.split(".")[0]):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            points = tomllib.loads(_text(path)).get("project", {}).get("entry-points", {}).get("mjlab.tasks", {})
            modules += [str(value).partition(":")[0] for value in points.values()]
    return modules


def _project_files(package: str) -> list[Path]:
    """Return the nearest project files above a package's folder."""
    spec = importlib.util.find_spec(package) if package else None  # whether or not it could be imported
    path = spec and (spec.origin or next(iter(spec.submodule_search_locations or []), None))
    for folder in Path(path).absolute().parents[:_ABOVE] if path else ():
        if files := [folder / name for name in ("pyproject.toml", "setup.py") if (folder / name).is_file()]:
            return files
    return []


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _names_mjlab(error: BaseException) -> bool:
    """Return whether an error names mjlab, or lacks an attribute of one of its objects, or is of a call of it."""
    assert error.__traceback__ is not None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    called = frame.f_globals.get(str(error).partition("(")[0].partition(".")[0])  # "f() takes", "C.__init__() takes"
    homes = [getattr(x, "__module__", "") for x in (called, *type(getattr(error, "obj", None)).__mro__)]
    return "mjlab" in str(error) or any(str(home).split(".")[0] == "mjlab" for home in homes)


def _incomplete(error: ModuleNotFoundError) -> str:
    return f"mjlab cannot be imported, because {error.name} is not installed: pip install 'envcoder-bench[mjlab]'"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"
