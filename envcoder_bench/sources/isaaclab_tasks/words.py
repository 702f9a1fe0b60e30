"""A task of Isaac Lab in words, for prompts and ``--describe``: the order of joints, bodies and columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def names_of(world: Any) -> Iterator[str]:
    """Yield lines on the scene of a world."""
    for name, asset in world.scene.articulations.items():
        for kind, key, names in (("Joints", "joint_pos", asset.joint_names), ("Bodies", "body_*", asset.body_names)):
            if len(names) > (kind == "Bodies"):
                yield f"{kind} of `{name}`, in the order of `{name}.{key}`: {', '.join(names)}."
    for name, sensor in world.scene.sensors.items():
        if hasattr(sensor, "body_names"):
            yield f"Columns of `sensor.{name}.*`: {', '.join(sensor.body_names)}."
    actions = world.action_manager
    for name, width in zip(actions.active_terms, actions.action_term_dim):
        term = actions.get_term(name)
        joints = ", ".join(getattr(term, "_joint_names", None) or ()) or "see its class"
        yield f"Columns of `action`, term `{name}` ({type(term).__name__}), {width}: {joints}."


def unmeasured_by(world: Any, term: Any) -> str:
    """Return what a term of observations reads and a robot does not measure; empty if it seems to be nothing."""
    called = getattr(term.func, "__name__", type(term.func).__name__)
    names = [getattr(x, "name", "") for x in term.params.values()]
    sensors = [world.scene.sensors[name] for name in names if name in world.scene.sensors]
    if called.endswith("lin_vel"):
        return "the base's linear velocity"
    if "height" in called or any(hasattr(sensor, "num_rays") for sensor in sensors):
        return "heights of the ground"
    if any(hasattr(sensor, "compute_first_contact") for sensor in sensors):
        return "forces of contacts"
    return "the base's position" if called.endswith(("pos_w", "pos_z", "root_pos")) else ""
