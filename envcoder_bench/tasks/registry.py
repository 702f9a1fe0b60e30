"""The registry of tasks: the one place where what ``--task`` says becomes a task.

A task is given by its registered name, its folder, ``module:Class``, or the address of an Isaac Gym task
(``isaacgymenvs:Ant``, ``legged_gym:a1``, ``file.py:Class``); installed packages register tasks by entry
points of the group ``envcoder_bench.tasks``, whose name is the task's and whose value is ``module:Class``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcoder_bench.core.errors import near_matches
from envcoder_bench.core.folders import project_folder

if TYPE_CHECKING:  # it imports torch, which the names of tasks do not need
    from envcoder_bench.tasks.base import Task
    from envcoder_bench.tasks.spec import TaskSpec

GROUP = "envcoder_bench.tasks"  # of entry points
_SHIPPED = {  # the folder of each
    "AllegroHand": "allegro_hand",
    "Ant": "ant",
    "Anymal": "anymal",
    "AnymalTerrain": "anymal_terrain",
    "Cartpole": "cartpole",
    "CartpoleSwingup": "cartpole_swingup",
    "FrankaCubeStack": "franka_cube_stack",
    "Humanoid": "humanoid",
    "SpotTerrain": "spot_terrain",
}
_found: dict[str, TaskSpec] = {}  # so far, by name
_by_address: dict[str, TaskSpec] = {}  # Isaac Gym tasks


def task_names() -> list[str]:
    """Return the names of shipped tasks and of those of installed packages, sorted."""
    return sorted({*_SHIPPED, *_installed()})


def is_installed(task: str) -> bool:
    """Return whether this is the name of a shipped task or of an installed package's, and not a place of code."""
    return task in _SHIPPED or task in _installed()


def get_spec(task: str, config: Mapping[str, Any] | None = None) -> TaskSpec:
    """Find a task by its name, its folder or ``module:Class``, and load its class.

    Once an outside task has been found, it is also known by its name.

    Args:
        config: the task's config of a run. An Isaac Gym task's state depends on it; None means the config that the
            task was last asked for with, or else its YAML.

    Raises:
        ValueError: there is no such task, a file of it is missing or invalid, or its code fails with this config.
    """
    return built_spec(find_spec(task), config)


def built_spec(spec: TaskSpec, config: Mapping[str, Any] | None = None) -> TaskSpec:
    """Return a task with the class of its state: an Isaac Gym task is simulated for it. Arguments as of ``get_spec``.

    Raises ValueError if the task's code fails with this config.
    """
    if ":" not in (spec.source or ""):
        return spec
    from envcoder_bench.tasks.isaacgym_tasks import is_isaac_address
    from envcoder_bench.tasks.isaacgym_tasks.spec import probed_spec

    return probed_spec(_by_address.get(spec.address, spec), config) if is_isaac_address(spec.address) else spec


def find_spec(task: str) -> TaskSpec:
    """Find a task as ``get_spec`` does; an Isaac Gym task is not run, and its class has no fields of the state yet."""
    if task in _found:
        known = _found[task]
        # a task from elsewhere may have been edited since: its name finds what its address does
        return known if known.source in (None, task) else find_spec(known.source)
    if task in _SHIPPED:
        _found[task] = _shipped(task)
        return _found[task]
    if task not in _installed() and not os.path.isdir(task) and ":" not in task:
        raise ValueError(_unknown(task))
    from envcoder_bench.tasks import outside
    from envcoder_bench.tasks.isaacgym_tasks import is_isaac_address
    from envcoder_bench.tasks.mjlab_tasks import is_mjlab_address
    from envcoder_bench.tasks.spec import digest

    # outside tasks: by address, as found before, by entry point, folder or module
    with outside.restored_on_error():
        if is_isaac_address(task):
            return _isaac(task)
        if is_mjlab_address(task):
            return _mjlab(task)
        for spec in outside_tasks().values():
            if spec.source in (task, os.path.abspath(task)) and spec.digest == digest(
                spec.folder, spec.task_class.model
            ):
                return spec
        installed = _installed().get(task)
        if installed is not None:
            spec = _checked(outside.from_module(installed))
            if spec.name != task:
                raise ValueError(
                    f"the entry point {task} = {installed} is of a task named {spec.name}: rename one of them"
                )
        elif os.path.isdir(task):
            spec = _checked(outside.from_folder(Path(task)))
        else:
            spec = _checked(outside.from_module(task))
    return _register(spec)


def _register(spec: TaskSpec) -> TaskSpec:
    from envcoder_bench.tasks.sim_task import YAML_FILES

    _found[spec.name] = spec
    YAML_FILES[spec.name] = str(spec.config)
    return spec


def _isaac(task: str) -> TaskSpec:
    """An Isaac Gym task, known by its address as well, so that its files are written once."""
    from envcoder_bench.tasks.isaacgym_tasks.spec import isaac_spec, mount_isaac

    spec = _by_address.get(task) or isaac_spec(task, _SHIPPED)
    mount_isaac(spec)  # of several configs of one class the last one that was asked for has the name
    _by_address[task] = _by_address[spec.address] = spec
    return _register(spec)


def _mjlab(task: str) -> TaskSpec:
    from envcoder_bench.tasks.mjlab_tasks.spec import mjlab_spec
    from envcoder_bench.tasks.outside import mount

    spec = _checked(mjlab_spec(task))
    mount(spec.name, spec.folder)
    return _register(spec)


def check_task_name(task: str) -> None:
    """Raise ValueError as ``find_spec`` does."""
    if task not in _SHIPPED:
        find_spec(task)


def outside_tasks() -> dict[str, TaskSpec]:
    """Return the tasks from outside the package that have been found so far, by name."""
    return {name: spec for name, spec in _found.items() if spec.digest}


def _installed() -> dict[str, str]:
    """Return the ``module:Class`` of tasks of installed packages, by name."""
    return {point.name: point.value for point in entry_points(group=GROUP)}


def _shipped(name: str) -> TaskSpec:
    from envcoder_bench.tasks.spec import TaskSpec

    folder, cfg = _SHIPPED[name], project_folder("cfg")
    if name in _installed():
        raise ValueError(f"an installed package has a task named {name}, which is a shipped one: {_installed()[name]}")
    task_class = getattr(importlib.import_module(f"envcoder_bench.tasks.{folder}.task"), name)
    home = Path(__file__).resolve().parent / folder
    return TaskSpec(home, task_class, cfg / "task" / f"{name}.yaml", cfg / "train" / f"{name}PPO.yaml")


def _checked(spec: TaskSpec) -> TaskSpec:
    """Return the task; raise ValueError if it has the name of a shipped task."""
    if spec.name in _SHIPPED:
        raise ValueError(f"{spec.folder}: {spec.name} is a shipped task's name: choose another, in class and YAML")
    return spec


def _unknown(task: str) -> str:
    if os.sep in task or "/" in task:
        path = Path(task)
        siblings = [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
        return f"unknown task '{task}': there is no such folder{near_matches(path.name, siblings)}"
    return f"unknown task '{task}'{near_matches(task, task_names())}; there are {', '.join(task_names())}"


def make_task(spec: TaskSpec, cfg: Mapping[str, Any], num_envs: int, sim: str, device: str) -> Task:
    """Build a task and its simulation.

    Args:
        spec: the task, as ``get_spec`` finds it with this config.
        cfg: its config.
        num_envs: environments.
        sim: the simulator's name, e.g. ``mujoco_cpu``.
        device: torch device.

    Raises:
        ValueError: an unknown simulator, or an unknown or missing key of ``cfg``.
    """
    from envcoder_bench.sim import make_simulator  # here, because names of tasks need no torch
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
    from envcoder_bench.tasks.task_code import check_default_state, task_code

    task_class = spec.task_class
    if not issubclass(task_class, SimTask):
        return task_class(cfg, num_envs, device)  # it brings its own simulation
    check_config(cfg, used_keys(task_class), ignored_keys(task_class))
    dt, substeps = control_timing(cfg)
    control = read(cfg, "env").get("control", {})
    simulator = make_simulator(
        sim,
        spec.model_path,
        num_envs,
        dt,
        substeps,
        device,
        stiffness=control.get("stiffness"),
        damping=control.get("damping"),
        options=engine_options(cfg),
        ground=task_class.ground(cfg),
    )
    with task_code(spec.folder):
        task = task_class(cfg, simulator)
        check_default_state(task)
    if task.max_episode_length < 2:
        raise ValueError(f"{yaml_file(cfg)}: an episode must last at least 2 steps, got {task.max_episode_length}")
    return task
