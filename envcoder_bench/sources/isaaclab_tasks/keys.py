"""Keys of ``state_dict`` that are read from the scene, such as ``robot.joint_pos`` and ``command.base_velocity``."""

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
    "default_joint_pos": ("rad or m", "joint positions from which actions count"),
    "soft_joint_pos_limits": ("rad or m", "limits of the joint positions that terms use"),
    "applied_torque": ("N m or N", "efforts of the actuators in the last physics step"),
}
_ROOT = {
    "root_pos_w": ("m", "position of the root body, world frame"),
    "root_quat_w": ("-", "its orientation, wxyz"),
    "root_lin_vel_w": ("m/s", "linear velocity of its centre of mass, world frame"),
    "root_ang_vel_w": ("rad/s", "its angular velocity, world frame"),
    "root_lin_vel_b": ("m/s", "linear velocity of its centre of mass, body frame"),
    "root_ang_vel_b": ("rad/s", "its angular velocity, body frame"),
    "projected_gravity_b": ("-", "direction of gravity in the root's frame"),
}
_BODIES = {
    "body_pos_w": ("m", "positions of the bodies, world frame"),
    "body_quat_w": ("-", "their orientations, wxyz"),
    "body_lin_vel_w": ("m/s", "linear velocities of their centres of mass, world frame"),
    "body_ang_vel_w": ("rad/s", "their angular velocities, world frame"),
}
_SENSORS = {
    "net_forces_w": ("N", "normal forces of contacts, world frame"),
    "current_air_time": ("s", "time in the air so far"),
    "last_air_time": ("s", "duration of the last time in the air"),
    "current_contact_time": ("s", "time in contact so far"),
    "last_contact_time": ("s", "duration of the last contact"),
    "ray_hits_w": ("m", "points that rays hit, world frame"),
}


def sources_of(world: Any) -> dict[str, Any]:
    """Return how each key is read, its unit and its meaning."""
    scene, sources = world.env.scene, {}
    for name, term in world.dialect.terms(world.cfg, "commands").items():
        sources[f"command.{name}"] = (lambda name=name: world.commands.get_command(name), *command_in_words(name, term))
    for key, meaning in (("action", "the last action"), ("prev_action", "the action before it")):
        sources[key] = (_attribute(world.action_manager, key), "-", f"{meaning}, as the policy gave it")
    return {**scene_sources(scene), **sources}


def scene_sources(scene: Any) -> dict[str, Any]:
    """Return how the keys of assets and sensors are read, their units and their meanings."""
    sources = {}
    for name, asset in {**scene.articulations, **scene.rigid_objects}.items():
        for key, (unit, meaning) in _asset_keys(asset):
            sources[f"{name}.{key}"] = (_attribute(asset.data, key), unit, meaning)
    sources["env_origins"] = (lambda: scene.env_origins, "m", "origin of the environment, world frame")
    for name, sensor in scene.sensors.items():
        for key, (unit, meaning) in _SENSORS.items():
            if isinstance(getattr(sensor.data, key, None), Tensor):
                sources[f"sensor.{name}.{key}"] = (_sensed(sensor, key), unit, meaning)
    return sources


def _asset_keys(asset: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    if getattr(asset, "num_joints", 0):
        yield from _JOINTS.items()
    if not getattr(asset, "is_fixed_base", False):
        yield from _ROOT.items()
    if asset.num_bodies > 1:
        yield from _BODIES.items()


def _attribute(owner: Any, name: str) -> Read:
    return lambda: getattr(owner, name)


def _sensed(sensor: Any, name: str) -> Read:
    return lambda: getattr(sensor.data, name)
