"""What candidates write in the words of a task's framework: dicts that change sections of its config.

``rewards = {"upright": 2.0, "energy": None, "mine": RewardTermCfg(func=mine, weight=-1.0)}``: a number sets a weight,
None removes a term, a config or a function replaces or adds one, and a dict sets some attributes and parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envcoder_bench.core.errors import near_matches
from envcoder_bench.sources.term_tasks import SECTIONS
from envcoder_bench.sources.term_tasks.curricula.plain import plain
from envcoder_bench.sources.term_tasks.dialect import Dialect
from envcoder_bench.sources.term_tasks.faults import PatchError
from envcoder_bench.sources.term_tasks.terms import frozen

Patches = Mapping[str, Mapping[str, Any]]


def patched(dialect: Dialect, base: Any, patches: Sequence[Patches], actor: str) -> list[Any]:
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
            by_id[id(patch)] = patched_one(dialect, base, patch, actor) if patch else base
        configs.append(by_id[id(patch)])
    return configs


def patched_one(dialect: Dialect, base: Any, patch: Patches, actor: str) -> Any:
    """Return a copy of a config with one candidate's patches."""
    cfg = base
    for section, changes in patch.items():
        before = dialect.terms(base, section)
        observes = section == "observations"
        terms = _groups(dialect, before, changes, actor) if observes else _changed(dialect, section, before, changes)
        cfg = dialect.with_terms(cfg, section, terms)
    return cfg


def block_keys(dialect: Dialect, configs: Sequence[Any], reads_rewards: bool = False) -> list[Any]:
    """Return the keys of groups, which are equal for groups of one block; ``reads_rewards``: see ``TermFacts``."""
    alone = [k if has_unknown_curricula(dialect, cfg) else -1 for k, cfg in enumerate(configs)]
    return [(k, _world_key(dialect, cfg, reads_rewards)) for k, cfg in zip(alone, configs)]


def _world_key(dialect: Dialect, cfg: Any, reads_rewards: bool) -> Any:
    """Return what groups of one block have in common."""
    sections = ["commands", "events", "curriculum"]
    if changes_terms(dialect, cfg) and not judges_groups(dialect, cfg):  # it sets weights of all groups of the block
        sections += ["rewards", "terminations"]
    elif reads_rewards:
        sections.append("rewards")
    return tuple(frozen(dialect.terms(cfg, section)) for section in sections)


def changes_terms(dialect: Dialect, cfg: Any) -> bool:
    """Return whether a curriculum may set weights and parameters of terms: another one than of commands or terrain."""
    return _has_other_curricula(dialect, cfg, (*dialect.of_one_environment, *dialect.commands_of_the_step))


def judges_groups(dialect: Dialect, cfg: Any) -> bool:
    """Return whether a curriculum may read what the environments of a group did; it is then evaluated by group."""
    return any(judges(dialect, term) for term in dialect.terms(cfg, "curriculum").values())


def judges(dialect: Dialect, term: Any) -> bool:
    """Return whether a term of a curriculum may read what the environments of a group did."""
    others = (*dialect.of_one_environment, *dialect.commands_of_the_step, *dialect.terms_of_the_step)
    return getattr(dialect.get(term, "func"), "__name__", "") not in others


def has_unknown_curricula(dialect: Dialect, cfg: Any) -> bool:
    """Return whether a curriculum by what a group did may change more than numbers of configs: its group is a block."""
    terms = [term for term in dialect.terms(cfg, "curriculum").values() if judges(dialect, term)]
    return any(plain(dialect.get(term, "func")) is None for term in terms)


def _has_other_curricula(dialect: Dialect, cfg: Any, names: Sequence[str]) -> bool:
    functions = (dialect.get(term, "func") for term in dialect.terms(cfg, "curriculum").values())
    return any(getattr(function, "__name__", "") not in names for function in functions)


def _changed(dialect: Dialect, section: str, base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a section with changes."""
    terms = dict(base)
    for name, value in changes.items():
        term = _term(dialect, section, name, value, terms)
        weight = 0.0 if term is None else dialect.get(term, "weight", 0.0)
        if not (isinstance(weight, (int, float)) and math.isfinite(weight)):
            raise PatchError(section, name, f"the weight of {section}['{name}'] must be finite, not {weight!r}")
        if term is None:
            del terms[name]
        else:
            terms[name] = term
    return terms


def _term(dialect: Dialect, section: str, name: str, value: Any, terms: Mapping[str, Any]) -> Any:
    """Return the config of a term as ``value`` changes it; None if the term is removed."""
    if dialect.is_term(section, value):
        return value
    before = terms.get(name)
    new = before is None
    weight = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    partial = isinstance(value, Mapping)
    if new and (value is None or weight is not None or (partial and "func" not in value)):
        there = f"there are {', '.join(terms)}" if terms else "there is none"
        raise PatchError(section, name, f"{section} has no term '{name}'{near_matches(name, terms)}; {there}")
    if value is None:
        return None
    if weight is not None and section == "rewards":
        same = weight == dialect.get(before, "weight")
        return before if same else dialect.with_values(before, {"weight": weight})
    if partial:
        start = dialect.new_term(section, _needed(section, value)) if new else before
        return _with(dialect, section, name, start, value)
    if callable(value) and section != "commands":
        if not new:
            return dialect.with_values(before, {"func": value, "params": {}})
        return dialect.new_term(section, {"func": value, **_needed(section, {})})
    takes = "a number, None, " if section == "rewards" else "None, "
    raise PatchError(
        section, name, f"{section}['{name}'] must be {takes}a {dialect.kind(section)}, a dict or a function"
    )


def _needed(section: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without which a new term cannot be constructed."""
    attributes = {key: value[key] for key in ("func", "mode") if key in value}
    if section == "rewards":
        return {"weight": 1.0, **attributes}
    return {"mode": "reset", **attributes} if section == "events" else attributes


def _with(dialect: Dialect, section: str, name: str, before: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a config object with some fields set; dicts go into dicts and config objects.

    Classes, and attributes that are not fields, are shared with other candidates: they cannot be set.
    """
    values: dict[str, Any] = {}
    for key, value in changes.items():
        if key not in dialect.keys(before):
            hint = near_matches(key, dialect.keys(before))
            raise PatchError(section, name, f"{section}['{name}'] has no '{key}'{hint}")
        old = dialect.get(before, key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = {**old, **value}
        elif isinstance(value, Mapping) and dialect.keys(old):
            value = _with(dialect, section, name, old, value)
        values[key] = value
    return dialect.with_values(before, values)


def _groups(dialect: Dialect, base: Mapping[str, Any], changes: Mapping[str, Any], actor: str) -> dict[str, Any]:
    """Return the groups of observations with changes; terms that are not in a group's dict are of ``actor``."""
    groups = dict(base)
    nested = {name: value for name, value in changes.items() if name in groups and isinstance(value, Mapping)}
    flat = {name: value for name, value in changes.items() if name not in nested}
    of_actor = dialect.group_terms(groups[actor])
    for name, value in flat.items():
        if isinstance(value, Mapping) and "func" not in value and name not in of_actor:
            every = [*groups, *of_actor]
            message = f"observations has no group or term '{name}'{near_matches(name, every)}; there are the groups"
            raise PatchError("observations", name, f"{message} {', '.join(groups)}")
    if flat:
        nested[actor] = {**nested.get(actor, {}), **flat}
    for name, values in nested.items():
        group, terms = groups[name], dialect.group_terms(groups[name])
        attributes = {key: x for key, x in values.items() if key in dialect.keys(group) and key not in terms}
        if "terms" in attributes:
            raise PatchError("observations", name, f"observations['{name}'] takes its terms by their names")
        of_terms = {key: x for key, x in values.items() if key not in attributes}
        terms = _changed(dialect, "observations", terms, of_terms)
        groups[name] = dialect.with_group_terms(dialect.with_values(group, attributes), terms)
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


# for a section, the function that replaces it, and the key of the state with what its terms return
_FUNCTION_OF = {
    "rewards": ("compute_reward", "reward_buf"),
    "observations": ("compute_observation", "obs_buf"),
    "terminations": ("compute_terminal", "reset_buf"),
}


def only_weights(patches: Patches) -> bool:
    """Return whether patches set nothing but weights of rewards."""
    return set(patches) == {"rewards"} and all(isinstance(x, (int, float)) for x in patches["rewards"].values())
