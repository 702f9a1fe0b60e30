"""What programs of robots need to run a policy of a task of mjlab, by the names of mjlab's exporter."""

# mjlab is optional
# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor


def deployment(world: Any, block: Any, group: int) -> dict[str, Any]:
    """Return joints, gains, default pose, action scale, delay and observation terms of a group's policy.

    Joints are those of the policy's action, in its order. It is empty unless the actions are joint positions of one
    robot. A gain is that of the position drive, 0 without one.
    """
    from mjlab.envs.mdp.actions import JointPositionAction

    actions = world.action_manager
    terms = [actions.get_term(name) for name in actions.active_terms]
    if len(terms) != 1 or not isinstance(terms[0], JointPositionAction):
        return {}
    term, name = terms[0], terms[0].cfg.entity_name
    entity, model, joints = world.scene.entities[name], world.sim.mj_model, list(term.target_names)
    ids = {joint: model.joint(f"{name}/{joint}").id for joint in entity.joint_names}
    stiffness, damping = _gains(entity, model, ids, joints)
    default = entity.data.default_joint_pos[0].tolist()
    lags = [getattr(actuator.cfg, "delay_max_lag", 0) for actuator in entity.actuators]
    return {
        "joint_names": joints,
        "joint_stiffness": stiffness,
        "joint_damping": damping,
        "default_joint_pos": [default[entity.joint_names.index(joint)] for joint in joints],
        "action_scale": _row(term.scale, len(joints)),
        "action_offset": _row(term.offset, len(joints)),
        "action_delay": max(lags, default=0) * world.env.physics_dt,
        "command_names": list(world.cfg.commands),
        "command_ranges": _ranges(block),
        **_observations(world, block, group),
    }


def _row(x: Tensor | float, width: int) -> list[float]:
    return x[0].tolist() if isinstance(x, Tensor) else [float(x)] * width


def _gains(entity: Any, model: Any, ids: Mapping[str, int], joints: Sequence[str]) -> tuple[list[float], list[float]]:
    """Return stiffness and damping of the drives of ``joints``, of the model or of mjlab; ``ids`` are the model's."""
    names = {k: name for name, k in ids.items()}
    gains = {names.get(int(model.actuator_trnid[k, 0])): -model.actuator_biasprm[k, 1:3] for k in range(model.nu)}
    for actuator in entity.actuators:
        if hasattr(actuator, "force_limit"):  # a drive in Python
            rows = zip(actuator.target_names, actuator.stiffness[0].tolist(), actuator.damping[0].tolist())
            gains.update({name: np.array(row) for name, *row in rows})
    rows = [gains.get(joint, np.zeros(2)).tolist() for joint in joints]
    return [row[0] for row in rows], [row[1] for row in rows]


def _ranges(block: Any) -> dict[str, list[float]]:
    """Return the ranges of a command of velocities, by its axes; empty without one."""
    for _, term in block.dialect.command_terms(block.command_manager):
        ranges = getattr(term.cfg, "ranges", None)
        if hasattr(ranges, "lin_vel_x"):
            return {key: [*map(float, x)] for key, x in vars(ranges).items() if x is not None}
    return {}


def _observations(world: Any, block: Any, group: int) -> dict[str, Any]:
    """Return the terms that the actor of a group observes."""
    rows = slice(group * block.size, (group + 1) * block.size)
    manager = next(m for m, own in block.observations.managers if own.start <= rows.start < own.stop)
    by_group = block.dialect.observation_terms(manager)
    terms = [x for name in world.obs_sets["actor"] for x in by_group[name]]
    widths = block.dialect.observation_widths(manager)
    return {
        "observation_names": [name for name, _ in terms],
        "observation_terms_scale": [_scale(cfg.scale) for _, cfg in terms],
        "observation_terms_clip": [list(cfg.clip or (-math.inf, math.inf)) for _, cfg in terms],
        "observation_terms_history_length": [int(cfg.history_length) for _, cfg in terms],
        "observation_terms_flatten_history_dim": [int(cfg.flatten_history_dim) for _, cfg in terms],
        "observation_terms_width": [widths[name][x] for name in world.obs_sets["actor"] for x, _ in by_group[name]],
    }


def _scale(scale: Any) -> float | list[float]:
    if scale is None:
        return 1.0
    return np.asarray(scale.cpu() if isinstance(scale, Tensor) else scale, dtype=float).tolist()
