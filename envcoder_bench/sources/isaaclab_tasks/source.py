"""Tasks of Isaac Lab in gymnasium's registry: their configs, and what is refused by name."""

# Isaac Lab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import logging
import pkgutil
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from envcoder_bench.core.errors import causes, near_matches
from envcoder_bench.sources.isaaclab_tasks import PREFIX
from envcoder_bench.sources.isaaclab_tasks.dialect import Terms
from envcoder_bench.sources.term_tasks import SECTIONS
from envcoder_bench.sources.term_tasks.faults import PatchError
from envcoder_bench.sources.term_tasks.quiet import quiet
from mujoco_batches.compat.warp_start import start_warp

INSTALL = "pip install isaaclab-mujoco, or ./packages/isaaclab_mujoco from a checkout"
ENV_CLASS = "isaaclab.envs:ManagerBasedRLEnv"
_ENV, _AGENT = "env_cfg_entry_point", "rsl_rl_cfg_entry_point"
_OWN = ("step", "reset", "check_reset", "compute_observations")  # methods of LeggedLab's environments
_OWN_CFG = ("scene", "sim.decimation", "domain_rand.events")  # what is read of their configs
_REGISTRY = {_ENV: "env_cfgs", _AGENT: "train_cfgs"}  # attributes of LeggedLab's registry
_LABS = "isaaclab_tasks"  # the package of Isaac Lab's own tasks
_WHOLE_SCENE = ("randomize_physics_scene_gravity",)  # functions of events that change all environments


@dataclass(frozen=True)
class Source:
    """A task of gymnasium's registry.

    Attributes:
        address: the value for ``--task``.
        task_id: its registered name.
        package: the package to import for tasks that are not Isaac Lab's; empty for those.
        digest: of the package's code.
    """

    address: str
    task_id: str
    package: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Its name as an identifier."""
        return "".join(c if c.isalnum() else "_" for c in self.task_id)

    @property
    def version(self) -> str:
        """The version of Isaac Lab."""
        import isaaclab

        return f"isaaclab {isaaclab.__version__}"

    def env_cfg(self) -> Any:
        """Return a new copy of its config; sections are dicts without the terms that are None, which managers skip."""
        cfg = _configs(self.task_id)[_ENV]()
        for section in SECTIONS:
            terms = getattr(cfg, section, None)
            named = {} if terms is None else terms if isinstance(terms, dict) else vars(terms)
            setattr(cfg, section, Terms({name: term for name, term in named.items() if term is not None}))
        for part in (*cfg.commands.values(), *vars(cfg.scene).values()):
            if hasattr(part, "debug_vis"):
                part.debug_vis = False
        return cfg

    @property
    def is_direct(self) -> bool:
        """Whether its environment is a class of its own, a ``DirectRLEnv``."""
        from isaaclab.envs import DirectRLEnv

        made = _environment(self.task_id)
        return isinstance(made, type) and issubclass(made, DirectRLEnv)

    @property
    def is_own(self) -> bool:
        """Whether its environment is another class, which steps, resets and observes as LeggedLab's ``BaseEnv``."""
        made = _environment(self.task_id)
        return isinstance(made, type) and not self.is_direct and all(callable(getattr(made, x, None)) for x in _OWN)

    def own_environment(self) -> tuple[Any, Any]:
        """Return a new copy of the config of an environment class, and the class."""
        return _configs(self.task_id)[_ENV](), _environment(self.task_id)

    def rl_cfg(self) -> Mapping[str, Any]:
        """Return its config of PPO. Raises ValueError if it is registered without."""
        make = _configs(self.task_id).get(_AGENT)
        if make is None:
            raise ValueError(f"{self.address} has no settings of PPO: register the task with {_AGENT}")
        return make().to_dict()

    def obs_sets(self, groups: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return which ``groups`` of observations actor and critic read, as rsl_rl does; a critic like the actor, none.

        Raises:
            ValueError: ``obs_groups`` has a group that the task has not.
        """
        asked = self.rl_cfg().get("obs_groups")
        asked = asked if isinstance(asked, dict) else {}
        actor = tuple(asked.get("policy") or ("policy",))
        critic = tuple(asked.get("critic") or (("critic",) if "critic" in groups else actor))
        for group in (*actor, *critic):
            if group not in groups:
                what = f"{self.address}: the settings of PPO read the observations '{group}' (obs_groups)"
                raise ValueError(f"{what}, and the task has {', '.join(groups)}")
        return {"actor": actor} if critic == actor else {"actor": actor, "critic": critic}


def find_source(task: str) -> Source:
    """Find a task by ``isaaclab:NAME`` or ``isaaclab:PACKAGE:NAME``.

    Raises:
        ValueError: Isaac Lab is not installed, or does not have the task.
    """
    package, _, name = task[len(PREFIX) :].rpartition(":")
    _install()
    for module in [package, f"{package}.tasks", f"{package}.envs"] if package else [_LABS]:
        inside = module.rpartition(".")[2] if package else ""
        if name not in task_ids(package) and (module in (package, _LABS) or _is_inside(package, inside)):
            _import(task, module)
            _register_own(task, package, name)
    known = task_ids(package)
    if name not in known:
        asked, others = package or _LABS, sorted(_packages(name))
        if others:
            remedy = f"--task {PREFIX}{others[0]}:{name}"
            raise ValueError(f"--task {task}: '{name}' is a task of {others[0]}, not of {asked}: give {remedy}")
        there = f"there are {', '.join(known)}" if known else f"{asked} registers none"
        raise ValueError(f"unknown task '{task}'{near_matches(name, known)}; {there}")
    source = Source(task, name, package, _digest(package))
    _refuse_other_environments(source)
    return source


def _register_own(task: str, package: str, name: str) -> None:
    """Put the tasks of a package's registry such as LeggedLab's, ``task_registry``, into gymnasium's.

    Raises ValueError if that of ``task``, which is called ``name``, is registered without a config.
    """
    import gymnasium

    modules = [module for path, module in sys.modules.items() if package and f"{path}.".startswith(f"{package}.")]
    registries = {id(x): x for module in modules if (x := vars(module).get("task_registry")) is not None}
    for registry in registries.values():
        for each, made in getattr(registry, "task_classes", {}).items():
            kwargs = {key: getattr(registry, held, {}).get(each) for key, held in _REGISTRY.items()}
            missing = [held for key, held in _REGISTRY.items() if kwargs[key] is None]
            if missing and each == name:
                what = f"task_registry of {package} has no {missing[0]}['{name}']"
                raise ValueError(f"--task {task}: {what}: register the task with a config and with settings of PPO")
            if not missing and each not in gymnasium.registry:
                gymnasium.register(each, entry_point=made, disable_env_checker=True, kwargs=kwargs)


def task_ids(package: str = "") -> list[str]:
    """Return the registered tasks of Isaac Lab, or of a package: those with a config, or a class, that is its own."""
    import gymnasium

    top = package.partition(".")[0]
    packages = {name: _packages(name) for name in gymnasium.registry}
    return [name for name, of in packages.items() if (top or _LABS) in of]


def _packages(task_id: str) -> set[str]:
    """Return which packages a task is of; none without a task.

    They have its class or its config; if Isaac Lab has the class, also its settings of PPO.
    """
    import gymnasium

    spec = gymnasium.registry.get(task_id)
    if spec is None or _ENV not in (spec.kwargs or {}):
        return set()
    entries = (x or _LABS for x in (spec.entry_point, spec.kwargs[_ENV], spec.kwargs.get(_AGENT)))
    paths = (x if isinstance(x, str) else x.__module__ for x in entries)
    made, config, agent = (path.partition(":")[0].partition(".")[0] for path in paths)
    labs = {"isaaclab", _LABS}
    return {config, agent if made in labs else made} - labs or {_LABS}


def _install() -> None:
    """Make Isaac Lab, and packages in the working folder, importable."""
    try:
        import isaaclab_mujoco
        from isaaclab_mujoco import checkout
        from isaaclab_mujoco.assets import find
        from isaaclab_mujoco.errors import UserError
    except ModuleNotFoundError as error:
        raise ValueError(f"the module {error.name} is missing: {INSTALL}") from None
    start_warp()
    here = Path.cwd()
    if here not in find.roots:
        find.roots.append(here)
    folders = [folder for folder in checkout.project_packages(here) if folder not in sys.path]
    sys.path[:0] = folders
    sys.path += [] if str(here) in sys.path else [str(here)]
    try:
        if (here / "assets.yaml").is_file():
            find.read_assets_file(here / "assets.yaml")
        with quiet():
            isaaclab_mujoco.install()
            importlib.import_module("isaaclab.envs")  # before a package's modules, which else import it in a circle
    except UserError as error:
        raise ValueError(str(error)) from None
    except ModuleNotFoundError as error:
        raise ValueError(_missing(error.name or "", checkout)) from None
    for logger in ("isaaclab", "isaaclab_mujoco"):
        logging.getLogger(logger).setLevel(logging.ERROR)


def _missing(module: str, checkout: ModuleType) -> str:
    """Return the line for a module that Isaac Lab imports and that is not there."""
    if module.partition(".")[0] in checkout.PACKAGES:
        return f"{checkout.find().parent} has no module {module}: set {checkout.VARIABLE} to a complete checkout"
    installed = any(distributions(name="isaaclab-mujoco"))  # else it is imported from a checkout's packages/
    remedy = f"pip install the package with {module}" if installed else INSTALL
    return f"the module {module} is missing, which Isaac Lab imports: {remedy}"


def _import(task: str, module: str) -> None:
    """Import a module that registers tasks. Raises ValueError if that fails."""
    try:
        with quiet():
            importlib.import_module(module)
    except Exception as error:  # its code may raise anything
        raise ValueError(f"--task {task}: {module} cannot be imported: {described(error, module)}") from None


def _is_inside(package: str, name: str) -> bool:
    return name in [x.name for x in pkgutil.iter_modules(getattr(sys.modules.get(package), "__path__", []))]


def _digest(package: str) -> str:
    """Return a digest of a package's code, which users edit."""
    spec = importlib.util.find_spec(package.partition(".")[0]) if package else None
    digest = hashlib.sha256()
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16] if package else ""


def _configs(task_id: str) -> dict[str, Any]:
    """Return the classes, or functions, that make the configs of a task."""
    import gymnasium

    found = {}
    for key, entry in (gymnasium.spec(task_id).kwargs or {}).items():
        if key in (_ENV, _AGENT) and entry is not None:
            if isinstance(entry, str):
                module, _, name = entry.partition(":")
                entry = getattr(importlib.import_module(module), name)
            found[key] = entry if callable(entry) else (lambda entry=entry: copy.deepcopy(entry))
    return found


def _environment(task_id: str) -> Any:
    """Return the class of a task's environment."""
    import gymnasium

    entry = gymnasium.spec(task_id).entry_point
    module, _, name = str(entry).partition(":")
    return getattr(importlib.import_module(module), name) if isinstance(entry, str) else entry


def _refuse_other_environments(source: Source) -> None:
    what = "its class cannot be imported"
    try:
        with quiet():
            made = _environment(source.task_id)
            what = "its config fails"
            cfg = _configs(source.task_id)[_ENV]()
    except Exception as error:
        raise ValueError(f"{source.address}: {what}: {described(error, source.package)}") from None
    if source.is_own:
        for key in _OWN_CFG:
            if not _has(cfg, key):
                what = f"its config, {type(cfg).__name__}, has no {key}"
                raise ValueError(f"{source.address}: {what}: a class with {', '.join(_OWN)} needs it")
    events = cfg.domain_rand.events if source.is_own else cfg.events if source.is_direct else None
    if not source.is_own:
        _refuse_other_configs(source, made, cfg)
    if events:
        shared = shared_by_groups(SimpleNamespace(events=dict(_events(events))))
        if shared is not None:
            raise ValueError(f"{source.address}: the event '{shared[1]}' {shared[2]}: register it with {shared[3]}")


def _has(cfg: Any, key: str) -> bool:
    first, _, rest = key.partition(".")
    return hasattr(cfg, first) and (not rest or _has(getattr(cfg, first), rest))


def _refuse_other_configs(source: Source, made: Any, cfg: Any) -> None:
    from isaaclab.envs import DirectRLEnvCfg, ManagerBasedRLEnv, ManagerBasedRLEnvCfg

    if not source.is_direct and made is not ManagerBasedRLEnv:
        why = f"its environment is {getattr(made, '__name__', made)}, a class of its own without {', '.join(_OWN)}"
        raise ValueError(f"{source.address}: {why}; tasks of {ENV_CLASS}, DirectRLEnv and with these are supported")
    wanted = DirectRLEnvCfg if source.is_direct else ManagerBasedRLEnvCfg
    if not isinstance(cfg, wanted):
        raise ValueError(f"{source.address}: its config is a {type(cfg).__name__}, not a {wanted.__name__}")
    terrain = getattr(cfg, "terrain", None) or getattr(cfg.scene, "terrain", None)
    if source.is_direct and getattr(terrain, "terrain_type", "plane") != "plane":
        raise ValueError(f"{source.address}: its terrain is generated, and a DirectRLEnv is ranked on a plane")


def _events(events: Any) -> Iterable[tuple[str, Any]]:
    named = events if isinstance(events, dict) else vars(events)
    return [(name, term) for name, term in named.items() if hasattr(term, "mode")]


def refuse_unsupported(source: Source, cfg: Any) -> None:
    """Raise ValueError for what a task has and this adapter does not, by name."""
    if (shared := shared_by_groups(cfg)) is not None:
        section, name, what, remedy = shared
        raise ValueError(f"{source.address}: the {section[:-1]} '{name}' {what}: register it with {remedy}")
    for reader, groups in source.obs_sets(cfg.observations).items():
        for group in groups:
            if not cfg.observations[group].concatenate_terms:
                what = f"observations['{group}'].concatenate_terms is False"
                raise ValueError(f"{source.address}: {what}, and the network of the {reader} reads one row of numbers")


def shared_by_groups(cfg: Any) -> tuple[str, str, str, str] | None:
    """Return section and name of what depends on the environments of other groups, what it does, and the remedy."""
    for name, event in cfg.events.items():
        if event.mode == "interval" and event.is_global_time:
            return "events", name, "has one clock for all environments (is_global_time)", "is_global_time=False"
        if event.mode == "prestartup":
            return "events", name, "changes the stage before the start (prestartup)", "another mode"
        if getattr(event.func, "__name__", "") in _WHOLE_SCENE:
            return "events", name, "changes the gravity of all environments", "None in its place"
    return None


def described(error: Exception, package: str = "") -> str:
    """Return an error in a line: a user's error as it is, of others the line of the package that raised it."""
    from isaaclab_mujoco.errors import line_of

    chain = list(causes(error))
    for cause in chain:
        if isinstance(cause, PatchError):
            return str(cause)
    if (line := line_of(error)) is not None:
        return line
    first = [cause for cause in chain if cause.__traceback__ is not None][-1]
    frames = traceback.extract_tb(first.__traceback__)
    line = ([frame for frame in frames if package and f"/{package.split('.')[0]}/" in frame.filename] or frames)[-1]
    return f"{line.filename}:{line.lineno}: {type(first).__name__}: {' '.join(str(first).split())}"
