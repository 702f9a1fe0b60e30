"""What candidates write in mjlab's words: dicts that change sections of a task's config.

``rewards = {"upright": 2.0, "energy": None, "mine": RewardTermCfg(func=mine, weight=-1.0)}``: a number sets a weight,
None removes a term, a config or a function replaces or adds one, and a dict sets some attributes and parameters.
"""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from envcoder_bench.core.errors import near_matches
from envcoder_bench.sources.mjlab_tasks import SECTIONS
from envcoder_bench.sources.mjlab_tasks.faults import PatchError
from envcoder_bench.sources.mjlab_tasks.terms import frozen

Patches = Mapping[str, Mapping[str, Any]]


def patched(base: Any, patches: Sequence[Patches], actor: str = "actor") -> list[Any]:
    """Return a config for each group; groups with the same patches, and the unchanged parts of all, share objects.

    Args:
        actor: the group of observations that has terms outside of a group's dict.

    Raises:
        PatchError: a patch does not fit.
    """
    by_id: dict[int, Any] = {}
    configs = []
    for patch in patches:
        if id(patch) not in by_id:
            by_id[id(patch)] = patched_one(base, patch, actor) if patch else base
        configs.append(by_id[id(patch)])
    return configs


def patched_one(base: Any, patch: Patches, actor: str = "actor") -> Any:
    """Return a copy of a config with one candidate's patches."""
    cfg = copy.copy(base)
    for section, changes in patch.items():
        if section == "observations":
            cfg.observations = _observations(base.observations, changes, actor)
        else:
            setattr(cfg, section, _changed(section, getattr(base, section), changes))
    return cfg


def world_key(cfg: Any, reads_rewards: bool = False) -> Any:
    """Return what groups of one block have in common; ``reads_rewards``: see ``Facts``."""
    own = [cfg.commands, cfg.events, cfg.curriculum]
    if changes_terms(cfg.curriculum):  # it sets weights of all groups of the block
        own += [cfg.rewards, cfg.terminations]
    elif reads_rewards:
        own.append(cfg.rewards)
    return tuple(map(frozen, own))


def changes_terms(curriculum: Mapping[str, Any]) -> bool:
    """Return whether a curriculum may set weights and parameters of terms: another one than of commands or terrain."""
    harmless = ("commands_vel", "terrain_levels_vel")
    return any(getattr(cfg.func, "__name__", "") not in harmless for cfg in curriculum.values())


def _config_class(section: str) -> Any:
    from mjlab.managers.command_manager import CommandTermCfg
    from mjlab.managers.curriculum_manager import CurriculumTermCfg
    from mjlab.managers.event_manager import EventTermCfg
    from mjlab.managers.observation_manager import ObservationTermCfg
    from mjlab.managers.reward_manager import RewardTermCfg
    from mjlab.managers.termination_manager import TerminationTermCfg

    return {
        "rewards": RewardTermCfg,
        "observations": ObservationTermCfg,
        "terminations": TerminationTermCfg,
        "commands": CommandTermCfg,
        "events": EventTermCfg,
        "curriculum": CurriculumTermCfg,
    }[section]


def _changed(section: str, base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a section with changes."""
    terms = dict(base)
    for name, value in changes.items():
        term = _term(section, name, terms.get(name), value, terms)
        weight = getattr(term, "weight", 0.0)
        if not (isinstance(weight, (int, float)) and math.isfinite(weight)):
            raise PatchError(section, name, f"the weight of {section}['{name}'] must be finite, not {weight!r}")
        if term is None:
            del terms[name]
        else:
            terms[name] = term
    return terms


def _term(section: str, name: str, before: Any, value: Any, terms: Mapping[str, Any]) -> Any:
    kind = _config_class(section)
    if isinstance(value, kind):
        return value
    new = before is None
    weight = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    partial = isinstance(value, Mapping)
    if new and (value is None or weight is not None or (partial and "func" not in value)):
        there = f"there are {', '.join(terms)}" if terms else "there is none"
        raise PatchError(section, name, f"{section} has no term '{name}'{near_matches(name, terms)}; {there}")
    if value is None:
        return None
    if weight is not None and section == "rewards":
        if weight == before.weight:
            return before
        changed: Any = copy.copy(before)
        changed.weight = weight
        return changed
    if partial:
        return _with(section, name, kind(**_needed(section, value)) if new else before, value)
    if callable(value) and section != "commands":
        if not new:
            changed: Any = copy.copy(before)
            changed.func, changed.params = value, {}
            return changed
        return kind(func=value, **_needed(section, {}))
    takes = "a number, None, " if section == "rewards" else "None, "
    raise PatchError(section, name, f"{section}['{name}'] must be {takes}a {kind.__name__}, a dict or a function")


def _needed(section: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without which a new term cannot be constructed."""
    given = {key: value[key] for key in ("func", "mode") if key in value}
    if section == "rewards":
        return {"weight": 1.0, **given}
    return {"mode": "reset", **given} if section == "events" else given


def _with(section: str, name: str, before: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a config object with some fields set; dicts go into dicts and config objects.

    Classes, and attributes that are not fields, are shared with other candidates: they cannot be set.
    """
    values: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in _fields(before):
            hint = near_matches(key, _fields(before))
            raise PatchError(section, name, f"{section}['{name}'] has no '{key}'{hint}")
        old = getattr(before, key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = {**old, **value}
        elif isinstance(value, Mapping) and _fields(old):
            value = _with(section, name, old, value)
        values[key] = value
    return _copy(before, values)


def _fields(config: Any) -> list[str]:
    """Return the names of a config object's fields; empty for a class and any other object."""
    return [x.name for x in fields(config)] if is_dataclass(config) and not isinstance(config, type) else []


def _copy(config: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy of a config object, perhaps a frozen one, with other values of some fields."""
    changed = copy.copy(config)
    for key, value in values.items():
        object.__setattr__(changed, key, value)
    return changed


def _observations(base: Mapping[str, Any], changes: Mapping[str, Any], actor: str) -> dict[str, Any]:
    """Return the groups of observations with changes; terms that are not in a group's dict are of ``actor``."""
    groups = dict(base)
    nested = {name: value for name, value in changes.items() if name in groups and isinstance(value, Mapping)}
    flat = {name: value for name, value in changes.items() if name not in nested}
    for name, value in flat.items():
        if isinstance(value, Mapping) and "func" not in value and name not in groups[actor].terms:
            every = [*groups, *groups[actor].terms]
            message = f"observations has no group or term '{name}'{near_matches(name, every)}; there are the groups"
            raise PatchError("observations", name, f"{message} {', '.join(groups)}")
    for name, own in {**nested, **({actor: {**nested.get(actor, {}), **flat}} if flat else {})}.items():
        group = copy.copy(groups[name])
        attributes = {key: x for key, x in own.items() if key in _fields(group) and key not in group.terms}
        if "terms" in attributes:
            raise PatchError("observations", name, f"observations['{name}'] takes its terms by their names")
        for key, x in attributes.items():
            setattr(group, key, x)
        group.terms = _changed("observations", group.terms, {k: x for k, x in own.items() if k not in attributes})
        groups[name] = group
    return groups


def in_module(module: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Return the dicts of a candidate's module, with its text, that patch sections.

    Raises:
        PatchError: one of these names is not a dict, or a function makes a dict useless.
    """
    for section in ("actions", "metrics", "scene", "sim"):
        if module.get(section) and isinstance(module[section], dict):
            raise PatchError(section, "", f"{section} are the task's: a candidate patches {', '.join(SECTIONS)}")
    patches = {section: module[section] for section in SECTIONS if section in module}
    for section, value in patches.items():
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise PatchError(section, "", f"{section} must be a dict by names of terms, not {type(value).__name__}")
        function, result = _FUNCTION_OF.get(section, ("", ""))
        if function in module and result not in source and result.replace("buf", "terms") not in source:
            message = f"{function} replaces the terms of {section}: read {result}, their result, or keep one of both"
            raise PatchError(section, "", message)
    return patches


# by section: the function that replaces it, and the key of the state with what its terms return
_FUNCTION_OF = {
    "rewards": ("compute_reward", "reward_buf"),
    "observations": ("compute_observation", "obs_buf"),
    "terminations": ("compute_terminal", "reset_buf"),
}


def only_weights(patches: Patches) -> bool:
    """Return whether patches set nothing but weights of rewards."""
    return set(patches) == {"rewards"} and all(isinstance(x, (int, float)) for x in patches["rewards"].values())
