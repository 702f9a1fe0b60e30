"""A task of mjlab in words, for prompts and ``--describe``: the order of joints, bodies and columns, and its terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envcoder_bench.sources.term_tasks.words import sections_in_words


def notes_of(world: Any, block: Any) -> str:
    """Return the lines of a list in Markdown.

    Args:
        world: the scene.
        block: an environment with the registered config.
    """
    return "\n".join(f"- {line}" for line in (*_names(world), *sections_in_words(block)))


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
