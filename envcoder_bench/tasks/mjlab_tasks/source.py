"""Tasks in mjlab's registry: their configs, and what is refused by name."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from io import StringIO
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.tasks.mjlab_tasks import PREFIX, SECTIONS
from envcoder_bench.tasks.mjlab_tasks.faults import PatchError
from isaacgym_mujoco.compat.warp_start import start_warp

INSTALL = "mjlab is not installed: pip install 'envcoder-bench[mjlab]'; docs/mjlab.md says how beside mujoco 4"

_broken: dict[str, str] = {}  # installed packages with tasks that cannot be imported, and why
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
        ValueError: mjlab is not installed, or there is no such task.
    """
    package, _, name = task[len(PREFIX) :].rpartition(":")
    registered, lacks = list_tasks(package), ""
    inside = pkgutil.iter_modules(getattr(sys.modules.get(package), "__path__", []))
    if name not in registered and "tasks" in [module.name for module in inside]:
        try:
            registered = list_tasks(f"{package}.tasks")
        except ValueError as error:  # the package may have registered its tasks elsewhere
            lacks = f"; {error}"
    if name not in registered:
        same = [one for one in registered if one.lower() == name.lower()]
        hint = f" (did you mean {same[0]}?)" if same else near_matches(name, registered)
        broken = "".join(f"; the package {name} cannot be loaded: {why}" for name, why in _broken.items())
        raise ValueError(f"unknown task '{task}'{hint}{lacks}; mjlab's registry has {', '.join(registered)}{broken}")
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

            if not Path(mjlab.__path__[0], "managers", "metrics_manager.py").is_file():
                raise ValueError(f"mjlab in {mjlab.__path__[0]} is too old: 1.2 or newer is needed, 1.6.0 was tested")
        except ModuleNotFoundError as error:
            missing = INSTALL if (error.name or "").split(".")[0] == "mjlab" else _incomplete(error)
            raise ValueError(missing) from None
        for point in entry_points(group="mjlab.tasks"):
            try:
                point.load()
            except Exception as error:  # which another task does not need
                _broken[point.name] = described(error, point.module)
        if package:
            sys.path.insert(0, os.getcwd())
            try:
                importlib.import_module(package)
            except Exception as error:  # of its code
                missing = (error.name or "" if isinstance(error, ModuleNotFoundError) else "") + "."
                reason = str(error) if f"{package}.".startswith(missing) else described(error, package)
                raise ValueError(f"--task {PREFIX}{package}:...: {package} cannot be imported: {reason}") from None
            finally:
                sys.path.remove(os.getcwd())
    return list_tasks()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide what mjlab and Warp print while they are imported or built."""
    from isaacgym_mujoco.physics.batch import collected

    out, err = contextlib.redirect_stdout(StringIO()), contextlib.redirect_stderr(StringIO())
    with out, err, warnings.catch_warnings(), collected():
        warnings.simplefilter("ignore")
        yield


def refuse_unsupported(source: Source, cfg: Any) -> None:
    """Raise ValueError for what a task has and this adapter cannot simulate, by name."""
    from mjlab.sensor.camera_sensor import CameraSensorCfg

    for sensor in cfg.scene.sensors:
        if isinstance(sensor, CameraSensorCfg):
            raise ValueError(f"{source.address} has the camera sensor '{sensor.name}', and cameras are not supported")
    for name, command in cfg.commands.items():
        if getattr(command, "motion_file", None) == "":
            raise ValueError(f"{source.address}: the command '{name}' has no motion file: {_REGISTER} with motion_file")
        if getattr(command, "sampling_mode", "") == "adaptive":
            what = f"{source.address}: the command '{name}' samples by the failures of all environments"
            raise ValueError(f"{what}, other candidates' included: {_REGISTER} with sampling_mode 'uniform'")
    for name, entity in cfg.scene.entities.items():
        for actuator in getattr(entity.articulation, "actuators", None) or ():
            if getattr(actuator, "delay_max_lag", 0) or type(actuator).__name__.startswith("Delayed"):
                raise ValueError(f"{source.address}: an actuator of '{name}' is delayed, which is not supported yet")
    for name, event in cfg.events.items():
        if event.mode == "interval" and event.is_global_time:
            raise ValueError(f"{source.address}: the event '{name}' has one clock for all environments, not supported")


def _without_none(terms: Mapping[str, Any]) -> dict[str, Any]:
    return {name: term for name, term in terms.items() if term is not None}


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def described(error: Exception, package: str = "") -> str:
    """Return the line of a package that raised an error, the error, and whether it may be one of versions."""
    first = [cause for cause in causes(error) if cause.__traceback__ is not None][-1]
    if isinstance(first, (UserError, PatchError)):
        return str(first)
    frames = traceback.extract_tb(first.__traceback__)
    inside = [frame for frame in frames if f"/{package.split('.')[0]}/" in frame.filename and package]
    line = (inside or frames)[-1]
    place, message = f"{line.filename}:{line.lineno}", " ".join(str(first).split())
    if isinstance(first, SyntaxError) and first.filename:
        place, message = f"{first.filename}:{first.lineno}", first.msg
    text = f"{place}: {type(first).__name__}: {message}"
    lost_file = message.startswith("Error:")  # of MuJoCo, such as a mesh
    of_mjlab = "/mjlab/" in frames[-1].filename and not isinstance(first, ModuleNotFoundError) and not lost_file
    of_mjlab |= isinstance(first, (AttributeError, ImportError, TypeError)) and _names_mjlab(first)
    return f"{text}; is it for mjlab {_version('mjlab')}?" if of_mjlab else text


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
