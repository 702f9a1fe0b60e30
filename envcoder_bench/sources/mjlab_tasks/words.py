"""A task of mjlab in words, for prompts and ``--describe``: its terms, and the order of joints, bodies and columns."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from envcoder_bench.sources.mjlab_tasks import SECTIONS


def notes_of(world: Any, block: Any) -> str:
    """Return the lines of a list in Markdown.

    Args:
        world: the scene.
        block: an environment with the registered config.
    """
    return "\n".join(f"- {line}" for line in (*_names(world), *_sections(block)))


def _names(world: Any) -> Iterator[str]:
    for name, entity in world.scene.entities.items():
        if entity is world.scene.terrain:
            continue
        for kind, key, names in (("Joints", "joint_pos", entity.joint_names), ("Bodies", "body_*", entity.body_names)):
            if len(names) > (kind == "Bodies"):
                yield f"{kind} of `{name}`, in the order of `{name}.{key}`: {', '.join(names)}."
    for name, sensor in world.scene.sensors.items():
        if hasattr(sensor, "primary_names"):
            yield f"Columns of `contact.{name}.*`: {', '.join(sensor.primary_names)}."
    actions = world.action_manager
    for name, width in zip(actions.active_terms, actions.action_term_dim):
        kind = type(actions.get_term(name)).__name__
        joints = getattr(actions.get_term(name), "target_names", None) or ()
        yield f"Columns of `action`, term `{name}` ({kind}), {width}: {', '.join(joints) or 'see its class'}."


def _sections(block: Any) -> Iterator[str]:
    cfg, manager = block.cfg, block._observations[0][0]
    for group, names in manager.active_terms.items():
        dims = [dim[0] if isinstance(dim, tuple) else dim for dim in manager.group_obs_term_dim[group]]
        columns = ", ".join(f"{name} {width}" for name, width in zip(names, dims))
        yield f"Observation terms of `{group}`, with their columns: {columns}."
    for section in SECTIONS:
        terms = getattr(cfg, section)
        if section != "observations" and terms:
            order = ", in the order of `reward_terms`" if section == "rewards" else ""
            lines = "".join(f"\n  - `{name}`{_term(term)}" for name, term in terms.items())
            yield f"Terms of `{section}`{order}:{lines}"


def _term(term: Any) -> str:
    """Return the numbers of a term, and what its function says that it does."""
    func = getattr(term, "func", None)
    values = {"weight": getattr(term, "weight", None), **(getattr(term, "params", None) or {})}
    ranges = getattr(term, "ranges", None)
    values.update({} if ranges is None else {"ranges": vars(ranges)})
    numbers = ", ".join(f"{key} {value}" for key, value in _numbers(values).items())
    meaning = "" if func is None else (inspect.getdoc(func) or "").partition("\n")[0].rstrip(".")
    name = "" if func is None else f" {getattr(func, '__name__', type(func).__name__)}"
    shown = ", ".join(filter(None, (numbers, name.strip())))
    return f"{shown and f': {shown}'}{meaning and f' ({meaning})'}"


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers among values, and the tuples and dicts of numbers."""
    numbers: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and (inside := _numbers(value)):
            numbers[key] = inside
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[key] = value
        elif isinstance(value, (tuple, list)) and value and all(isinstance(x, (int, float)) for x in value):
            numbers[key] = tuple(value)
    return numbers
