"""A task as data: what a run needs to know before it builds the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from envcoder_bench.core.errors import near_matches
from envcoder_bench.tasks.base import BASELINE_FILES, SPARSE

if TYPE_CHECKING:
    from envcoder_bench.sim.ground import Ground
    from envcoder_bench.tasks.base import Task

Config = Mapping[str, Any]
Functions = Mapping[str, Callable[..., Any]]  # the key is a name, such as ``compute_reward``
Patches = Mapping[str, Mapping[str, Any]]  # dicts of a candidate, by section of the task's config


class Sections(Protocol):
    """The sections of a task's config that candidates change by dicts, such as ``rewards = {"upright": 2.0}``."""

    def complete(self, module: Mapping[str, Any], source: str) -> tuple[Functions, Patches]:
        """Return the functions that read the results of a module's dicts, and the dicts.

        Args:
            module: the values of a candidate's file by name; functions in it are not replaced.
            source: its text.

        Raises:
            ValueError: a dict does not fit the task's config; its ``section`` and ``key`` say which.
        """
        ...


class Can(StrEnum):
    """What a task can do beyond the ``Task`` interface."""

    CONTACTS = "contacts"  # measure the contact force on each body, by sim.contacts
    HALF_STEP = "half_step"  # halve its physics step, by sim.substeps
    BOTH_BACKENDS = "both_backends"  # simulate in MuJoCo and in MuJoCo Warp, by sim.backend
    DETERMINISTIC = "deterministic"  # repeat a run bitwise on CUDA
    PROBE_ON_CPU = "probe_on_cpu"  # show its state on the CPU whatever the device of the run
    COMPILE_AHEAD = "compile_ahead"  # be built in other processes at the same time
    REGROUPS = "regroups"  # divide its state by environment, so that a race goes on after a rung
    POSITION_DRIVES = "position_drives"  # move its joints by default_dof_target, where no function commands them
    ANY_RESET = "any_reset"  # begin an episode in any state, with one environment, and forget all before it
    CHECKED_CONFIG = "checked_config"  # refuse unknown keys of its YAML files; otherwise its own code reads them


@dataclass(frozen=True, eq=False)
class TaskSpec:
    """A task, as a source finds it. What depends on a run's config is asked for with the config.

    Attributes:
        name: an identifier.
        folder: the folder with the baselines.
        config: the task's YAML.
        make: build the task from its config, a number of environments, the simulator's name, e.g. ``mujoco_cpu``, and
            a torch device. It raises ValueError for a config that the task cannot have.
        train: the YAML of PPO; None if the task has none.
        source: the value for ``--task``; None if that is the name.
        digest: digest of its code, model and YAML, for a task from outside the package; else empty.
        summary: one line.
        fitness_meaning, fitness_bounds: as ``Task`` has them; without a meaning it has no fitness of its own.
        can: its abilities, see ``Can``.
        config_keys: keys of the YAML that have an effect; a key includes all keys below it.
        ignored_keys: keys that are accepted without an effect.
        only: keys of which one value is supported: that value, and the alternative.
        model_path: the MuJoCo model; None if the task has no file of it.
        ground: return what replaces the plane of the model's file with a config; None keeps it.
        try_code: run the task's code once with a config, and return the folder of the baselines that fit what it found.
            It raises ValueError if the code fails. None if ``folder`` fits every config.
        sections: those that candidates change by dicts; None if candidates have functions alone.
        action_bound: greatest action of a learner with bounded ones, unless the run's config has another.
    """

    name: str
    folder: Path
    config: Path
    make: Callable[[Config, int, str, str], Task]
    train: Path | None = None
    source: str | None = None
    digest: str = ""
    summary: str = ""
    fitness_meaning: str = ""
    fitness_bounds: tuple[float, float] = (float("-inf"), float("inf"))
    can: frozenset[str] = frozenset()
    config_keys: tuple[str, ...] = ()
    ignored_keys: tuple[str, ...] = ()
    only: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    model_path: Path | None = None
    ground: Callable[[Config], Ground | None] = lambda cfg: None
    try_code: Callable[[Config | None], Path] | None = None
    sections: Sections | None = None
    action_bound: float = 1.0

    @property
    def address(self) -> str:
        """The value for ``--task``: its name, or its source."""
        return self.source or self.name

    def baseline_path(self, baseline: str, config: Config | None = None) -> Path:
        """Return the candidate file of a baseline: ``human``, ``unshaped``, or, if the task has it, ``sparse``.

        Args:
            config: the task's config of a run; None for that of its YAML.

        Raises:
            ValueError: the task has no such baseline, or its code fails with this config.
        """
        folder = self.folder if self.try_code is None else self.try_code(config)
        names = [*BASELINE_FILES, *([SPARSE] if (folder / f"{SPARSE}.py").is_file() else [])]
        if baseline not in names:
            hint = near_matches(baseline, names)
            raise ValueError(f"unknown baseline '{baseline}'{hint}; there are {', '.join(names)}")
        return folder / f"{baseline}.py"
