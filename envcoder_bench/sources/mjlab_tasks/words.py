"""A task of mjlab in words, for prompts and ``--describe``: the order of joints, bodies and columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envcoder_bench.sim.joint_facts import drive_facts, joint_facts
from envcoder_bench.tasks.contract import shown

_OF_ACTIONS = ("scale", "offset", "use_default_offset")  # keys of a term's config that say what an action does


def names_of(world: Any) -> Iterator[str]:
    """Yield lines on the scene of a world."""
    yield from _names(world)
    yield from _physics(world)


def unmeasured_by(world: Any, term: Any) -> str:
    """Return what a term of observations reads and a robot does not measure; empty if it seems to be nothing."""
    from envcoder_bench.sources.mjlab_tasks.robot import is_linear_velocity  # it needs mjlab, which is optional

    func, name = getattr(term.func, "_func", term.func), term.params.get("sensor_name", "")
    called, sensor = getattr(func, "__name__", type(func).__name__), world.scene.sensors.get(name)
    if called.endswith("lin_vel") or is_linear_velocity(world.sim.mj_model, name):
        return "the base's linear velocity"
    if hasattr(sensor, "primary_names"):
        return "forces of contacts"
    if "height" in called or hasattr(sensor, "num_rays"):
        return "heights of the ground"
    return "the base's position" if called.endswith(("pos_w", "root_pos", "base_pos")) else ""


def _physics(world: Any) -> Iterator[str]:
    """Yield lines on axes, signs, drives, masses and default positions of the joints, from the model."""
    model = world.sim.mj_model
    for name, entity in world.scene.entities.items():
        joints = {joint: model.joint(f"{name}/{joint}").id for joint in entity.joint_names}
        if entity is world.scene.terrain or not joints:
            continue
        default = entity.data.default_joint_pos[0].tolist()
        qpos = model.qpos0.copy()
        qpos[[int(model.jnt_qposadr[joint]) for joint in joints.values()]] = default
        facts, drives = joint_facts(model, qpos, joints, {}), drive_facts(model, joints)
        each = ", ".join({*drives.values()}) if len({*drives.values()}) == 1 and len(drives) == len(joints) else ""
        lines = [f"{x} {facts[x]}{f'; {drives[x]}' if x in drives and not each else ''}" for x in joints]
        yield (
            f"Joints of `{name}`, in the order of `{name}.joint_pos` (axes and directions of the world, in the default"
            f" pose, facing +x): {'. '.join(lines)}{f'. Each: {each}' if each else ''}. Default positions:"
            f" {shown(default)}."
        )
        masses = [f"{body} {model.body(f'{name}/{body}').mass[0]:.3g}" for body in entity.body_names]
        yield f"Masses of `{name}`, kg: {', '.join(masses)}; randomized where `events` say so."


def _names(world: Any) -> Iterator[str]:
    for name, entity in world.scene.entities.items():
        if entity is world.scene.terrain:
            continue
        if len(entity.body_names) > 1:
            yield f"Bodies of `{name}`, in the order of `{name}.body_*`: {', '.join(entity.body_names)}."
    for name, sensor in world.scene.sensors.items():
        if hasattr(sensor, "primary_names"):
            yield f"Columns of `contact.{name}.*`: {', '.join(sensor.primary_names)}."
    actions = world.action_manager
    for name, width in zip(actions.active_terms, actions.action_term_dim):
        kind = type(actions.get_term(name)).__name__
        joints = getattr(actions.get_term(name), "target_names", None) or ()
        asked = vars(actions.get_term(name).cfg)
        numbers = "".join(f", {key} {asked[key]}" for key in _OF_ACTIONS if asked.get(key))
        yield f"Columns of `action`, term `{name}` ({kind}{numbers}), {width}: {', '.join(joints) or 'see its class'}."
