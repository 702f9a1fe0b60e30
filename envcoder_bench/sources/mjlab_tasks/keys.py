"""Keys of ``state_dict`` that are read from the scene, such as ``robot.joint_pos`` and ``command.twist``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from envcoder_bench.sources.term_tasks.state_reader import Read
from envcoder_bench.sources.term_tasks.words import command_in_words

_JOINTS = {
    "joint_pos": ("rad or m", "joint positions"),
    "joint_vel": ("rad/s or m/s", "joint velocities"),
    "joint_acc": ("rad/s^2 or m/s^2", "joint accelerations"),
    "default_joint_pos": ("rad or m", "joint positions where an episode begins"),
    "soft_joint_pos_limits": ("rad or m", "limits of the joint positions that terms use"),
}
_ACTUATORS = {
    "actuator_force": ("N m or N", "forces of the actuators in the last physics step"),
    "qfrc_actuator": ("N m or N", "forces of the actuators on the joints in the last physics step"),
}
_ROOT = {
    "root_link_pos_w": ("m", "position of the root body, world frame"),
    "root_link_quat_w": ("-", "its orientation, wxyz"),
    "root_link_lin_vel_w": ("m/s", "its linear velocity, world frame"),
    "root_link_ang_vel_w": ("rad/s", "its angular velocity, world frame"),
    "root_link_lin_vel_b": ("m/s", "its linear velocity, body frame"),
    "root_link_ang_vel_b": ("rad/s", "its angular velocity, body frame"),
    "projected_gravity_b": ("-", "direction of gravity in the root's frame"),
    "heading_w": ("rad", "yaw of the root body"),
}
_BODIES = {
    "body_link_pos_w": ("m", "positions of the bodies, world frame"),
    "body_link_quat_w": ("-", "their orientations, wxyz"),
    "body_link_lin_vel_w": ("m/s", "their linear velocities, world frame"),
    "body_link_ang_vel_w": ("rad/s", "their angular velocities, world frame"),
}
_CONTACT = {
    "found": ("-", "number of contacts"),
    "force": ("N", "force of the contact"),
    "torque": ("N m", "torque of the contact"),
    "dist": ("m", "distance of the contact, negative in penetration"),
    "current_air_time": ("s", "time in the air so far"),
    "last_air_time": ("s", "duration of the last time in the air"),
    "current_contact_time": ("s", "time in contact so far"),
}


def sources_of(world: Any) -> dict[str, Any]:
    """Return how each key is read, its unit and its meaning."""
    sources = {}
    for name, entity in world.scene.entities.items():
        if entity is world.scene.terrain:
            continue
        for key, (unit, meaning) in _entity_keys(entity):
            if not hasattr(entity.data, key):  # mjlab 1.2 lacks some
                continue
            sources[f"{name}.{key}"] = (_attribute(entity.data, key), unit, meaning)
    for name, term in world.dialect.terms(world.cfg, "commands").items():
        sources[f"command.{name}"] = (lambda name=name: world.commands.get_command(name), *command_in_words(name, term))
    actions = world.action_manager
    for key, meaning in (("action", "the last action"), ("prev_action", "the action before it")):
        sources[key] = (_attribute(actions, key), "-", f"{meaning}, as the policy gave it")
    sources["env_origins"] = (lambda: world.scene.env_origins, "m", "origin of the environment, world frame")
    for name, sensor in world.scene.sensors.items():
        data = sensor.data
        if isinstance(data, Tensor):
            sources[f"sensor.{name}"] = (lambda sensor=sensor: sensor.data, "", f"the sensor '{name}'")
        elif isinstance(getattr(data, "heights", None), Tensor):
            text = f"height above the ground, of the sensor '{name}'"
            sources[f"height.{name}"] = (lambda sensor=sensor: sensor.data.heights, "m", text)
        else:
            for key, (unit, meaning) in _CONTACT.items():
                if isinstance(getattr(data, key, None), Tensor):
                    sources[f"contact.{name}.{key}"] = (_contact(sensor, key), unit, meaning)
    return sources


def _entity_keys(entity: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    if entity.is_articulated:
        yield from _JOINTS.items()
    if entity.is_actuated:
        yield from _ACTUATORS.items()
    if not entity.is_fixed_base:
        yield from _ROOT.items()
    if entity.num_bodies > 1:
        yield from _BODIES.items()


def _attribute(owner: Any, name: str) -> Read:
    return lambda: getattr(owner, name)


def _contact(sensor: Any, name: str) -> Read:
    return lambda: getattr(sensor.data, name)
