"""What differs between frameworks whose tasks are configs of terms: the form of their configs, and their managers.

A term is a function ``f(env, **params)`` that returns a row per environment, or ``f(env, env_ids, **params)`` for
events and curricula, and a config that names it. Frameworks differ in where the terms of a section are, in whether a
config is an object or a dict, and in what managers are called and keep.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


class Dialect(ABC):
    """The words of a framework. By default a config is an object with attributes, and a section a dict of terms.

    Attributes:
        name: of the framework, for messages; ``package`` is the one of its code.
        of_one_environment: names of curriculum functions that set nothing but numbers of single environments.
        commands_of_the_step, terms_of_the_step: names of those that set numbers of commands, or of other terms, by the
            counter of steps alone. All others are taken to read what a group's environments did.
        keeps_timers: whether a command's ``compute`` takes seconds per environment, so that its timer stays full in
            the step in which an episode begins; otherwise it takes the seconds of a step.
        branches: whether terms may run beside each other in a graph: they share no data that the first one computes.
    """

    name: str
    package: str = ""
    of_one_environment: tuple[str, ...] = ()
    commands_of_the_step: tuple[str, ...] = ()
    terms_of_the_step: tuple[str, ...] = ()
    keeps_timers: bool = False
    branches: bool = True

    # configs

    def get(self, config: Any, key: str, default: Any = None) -> Any:
        """Return an attribute of a config, or ``default`` if it has none."""
        return getattr(config, key, default)

    def put(self, config: Any, key: str, value: Any) -> None:
        """Set an attribute of a config, also of a frozen one."""
        object.__setattr__(config, key, value)

    def keys(self, config: Any) -> list[str]:
        """Return the attributes of a config that candidates may set; empty for a class and any other value."""
        return [x.name for x in fields(config)] if is_dataclass(config) and not isinstance(config, type) else []

    def values(self, config: Any) -> Mapping[str, Any]:
        """Return all attributes of a config."""
        return vars(config)

    def with_values(self, config: Any, values: Mapping[str, Any]) -> Any:
        """Return a copy of a config with other values of some attributes."""
        changed = copy.copy(config)
        for key, value in values.items():
            self.put(changed, key, value)
        return changed

    # sections

    def terms(self, cfg: Any, section: str) -> Mapping[str, Any]:
        """Return the terms of a section by name; of ``observations`` its groups."""
        return self.get(cfg, section)

    def with_terms(self, cfg: Any, section: str, terms: Mapping[str, Any]) -> Any:
        """Return a copy of a task's config with other terms in a section."""
        return self.with_values(cfg, {section: terms})

    def group_terms(self, group: Any) -> Mapping[str, Any]:
        """Return the terms of a group of observations by name."""
        return self.get(group, "terms")

    def with_group_terms(self, group: Any, terms: Mapping[str, Any]) -> Any:
        """Return a copy of a group of observations with other terms."""
        return self.with_values(group, {"terms": terms})

    @abstractmethod
    def is_term(self, section: str, value: Any) -> bool:
        """Return whether a value is a whole config of a term of a section."""

    @abstractmethod
    def new_term(self, section: str, values: Mapping[str, Any]) -> Any:
        """Return the config of a new term with some attributes set."""

    @abstractmethod
    def kind(self, section: str) -> str:
        """Return what a section's configs of terms are called, for messages."""

    @abstractmethod
    def resolve(self, value: Any, scene: Any) -> None:
        """Resolve the names in a parameter of a term, such as those of joints."""

    def step_dt(self, cfg: Any) -> float:
        """Return the seconds of a control step of a task's config."""
        return cfg.decimation * cfg.sim.dt

    @abstractmethod
    def reward_scale(self, cfg: Any, step_dt: float) -> float:
        """Return the factor of all weights: seconds of a step, or 1."""

    def is_of_one_environment(self, curriculum: Any) -> bool:
        """Return whether a term of a curriculum sets nothing but numbers of single environments."""
        return getattr(self.get(curriculum, "func"), "__name__", "") in self.of_one_environment

    @abstractmethod
    def root_velocities(self, env: Any, term: Any) -> tuple[Tensor, Tensor]:
        """Return the linear and angular velocity ``(n, 3)`` that a command of velocities asks for, body frame."""

    # managers

    @abstractmethod
    def event_manager(self, cfg: Any, env: Any) -> Any:
        """Return a manager with ``available_modes``, ``apply(mode=, env_ids=, ...)`` and ``reset(env_ids)``."""

    @abstractmethod
    def command_manager(self, cfg: Any, env: Any) -> Any:
        """Return a manager of commands, which a curriculum may change: ``cfg`` is not that of other managers."""

    @abstractmethod
    def observation_manager(self, cfg: Any, env: Any) -> Any:
        """Return a manager with ``reset(env_ids)``."""

    @abstractmethod
    def curriculum_manager(self, cfg: Any, env: Any) -> Any:
        """Return a manager of the curriculum."""

    @abstractmethod
    def metrics_manager(self, cfg: Any, env: Any) -> Any:
        """Return a manager with ``compute()``, which may do nothing."""

    @abstractmethod
    def event_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        """Return the names and the live configs of a manager's events."""

    @abstractmethod
    def command_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        """Return names and terms: ``compute(dt)``, ``reset(env_ids)``, ``metrics``, ``cfg``."""

    @abstractmethod
    def observation_terms(self, manager: Any) -> Mapping[str, Iterable[tuple[str, Any]]]:
        """Return the names and the live configs of a manager's terms, by group."""

    @abstractmethod
    def observation_dims(self, manager: Any) -> Mapping[str, Any]:
        """Return the shape of each group's observations, without the environments."""

    @abstractmethod
    def observation_widths(self, manager: Any) -> Mapping[str, Mapping[str, int]]:
        """Return the columns of each group's terms by name."""

    @abstractmethod
    def observe(self, manager: Any, group: str) -> Tensor:
        """Compute the observations of a group ``(n, columns)``, once per step: histories go on."""

    @abstractmethod
    def curriculum_terms(self, manager: Any) -> Iterable[tuple[str, Any]]:
        """Return the names and the live configs of a manager's curriculum."""

    @abstractmethod
    def kept_terms(self, manager: Any) -> Iterable[Any]:
        """Return the live configs of a manager's terms whose functions are objects with ``reset(env_ids)``."""
