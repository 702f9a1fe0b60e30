"""The settings of a grid: cfg/eval_policies.yaml with overrides."""

import math
from collections.abc import Sequence
from typing import Any

from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.settings import Settings, dotted, select
from envcoder_bench.core.yaml_files import overridden, read_yaml

FILE = "cfg/eval_policies.yaml"
_OPEN = ("layouts", "robots", "task_layouts")  # mappings to which overrides may add
_WHOLE = (
    "episodes", "control_hz", "physics_hz", "solver_iterations", "max_robots", "check_every", "arenas.stairs.steps",
    "video.fps",
)  # fmt: skip
_POSITIVE = (
    "seconds", "commands.waypoint_spacing", "ends.flip_angle", "arenas.width", "arenas.zone", "arenas.apron",
    "arenas.boulder.cell", "arenas.boulder.least_cell", "arenas.stairs.tread", "scan.length", "scan.width",
    "scan.spacing", "scan.clip", "video.seconds",
)  # fmt: skip
_AT_LEAST_0 = (
    "seed", "start.spread_xy", "start.spread_yaw", "start.spread_joints", "start.clearance", "commands.yaw_gain",
    "commands.max_wz", "commands.waypoint_reached", "ends.fall_height", "ends.finish_margin", "ends.completion_margin",
    "arenas.gap", "arenas.ground_friction", "compact_below", "checkpoint_minutes", "stability.height",
    "stability.turning", "robots.spot.stiffness", "robots.spot.damping", "robots.anymal_c.stiffness",
    "robots.anymal_c.damping",
)  # fmt: skip


def compose_settings(words: Sequence[str] = ()) -> Settings:
    """Apply ``key=value`` overrides to cfg/eval_policies.yaml.

    Raises:
        UserError: an override is malformed, names an unknown key, or has an invalid value.
    """
    settings = _defaults()
    keys = set(dotted(settings))
    keys |= {key.rsplit(".", depth)[0] for key in list(keys) for depth in (1, 2) if "." in key}
    for word in words:
        key = word.split("=")[0]
        if key not in keys and key.split(".")[0] not in _OPEN:
            raise UserError(f"unknown key '{key}'{near_matches(key, keys)}; the keys are those of {FILE}")
        with user_input():
            settings = overridden(settings, word)
    check_settings(settings)
    return settings


def _defaults() -> Settings:
    return read_yaml(project_folder("cfg") / "eval_policies.yaml")


def check_settings(cfg: Settings) -> None:
    """Raise UserError for a setting whose value has the wrong type or range."""
    for key, usual in dotted(_defaults()).items():
        value = select(cfg, key)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if isinstance(usual, (int, float)) and not number:
            raise UserError(f"{key} must be a finite number, got {value}")
        if isinstance(usual, tuple) and not isinstance(value, tuple):
            raise UserError(f"{key} must be a list, got {value}")
    for key in (*_WHOLE, *_POSITIVE, *_AT_LEAST_0):
        value: Any = select(cfg, key)
        if key in _WHOLE and (type(value) is not int or value < 1):
            raise UserError(f"{key} must be a whole number of at least 1, got {value}")
        if key in _POSITIVE and not 0 < value < float("inf"):
            raise UserError(f"{key} must be greater than 0, got {value}")
        if key in _AT_LEAST_0 and not 0 <= value < float("inf"):
            raise UserError(f"{key} must be at least 0, got {value}")
    if type(cfg.seed) is not int:
        raise UserError(f"seed must be a whole number, got {cfg.seed}")
    if cfg.physics_hz % cfg.control_hz:
        raise UserError(f"physics_hz must be a multiple of control_hz = {cfg.control_hz}, got {cfg.physics_hz}")
    if cfg.seconds * cfg.control_hz < 1:
        raise UserError(f"seconds must be at least a control step of {1 / cfg.control_hz} s, got {cfg.seconds}")
    if cfg.scan.order not in ("xy", "yx"):
        raise UserError(f"scan.order must be xy or yx, got {cfg.scan.order}")
    if cfg.arenas.friction.use not in ("static", "dynamic"):
        raise UserError(f"arenas.friction.use must be static or dynamic, got {cfg.arenas.friction.use}")
    if not 0 <= cfg.compact_below < 1:
        raise UserError(f"compact_below must be at least 0 and below 1, got {cfg.compact_below}")
