"""A task of mjlab in words, for prompts and ``--describe``: the order of joints, bodies and columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def names_of(world: Any) -> Iterator[str]:
    """Yield lines on the scene of a world."""
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
