"""Layouts: which numbers a policy observes, in which order and scale, and the scale of its actions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.errors import UserError, near_matches

VECTORS = ("lin_vel", "ang_vel", "gravity", "gravity_turned", "commands")  # of width 3
JOINTS = ("joint_pos", "joint_angles", "joint_vel", "actions")  # a number for each joint
SCAN = "scan"
PARTS = (*VECTORS, *JOINTS, SCAN)
_KEYS = ("parts", "scales", "joints", "scan", "action_scale")
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Layout:
    """What a policy observes.

    Attributes:
        parts: of PARTS, in the order of the columns.
        scales: the factor of each part, or of each of its columns.
        joints: index in the simulator's order of the policy's joints, in the policy's order; of actions, too.
        widths: columns of each part.
        points: x and y of the scan's points in the base's frame, m.
        action_scale: joint target = stance + action_scale * action, rad; None for the run's or the robot's.
    """

    name: str
    parts: tuple[str, ...]
    scales: tuple[float | tuple[float, ...], ...]
    joints: tuple[int, ...]
    widths: tuple[int, ...]
    points: Points = ()
    action_scale: float | None = None

    @property
    def width(self) -> int:
        """Number of columns."""
        return sum(self.widths)

    @property
    def scans(self) -> bool:
        """Whether it has a height scan."""
        return SCAN in self.parts


def read_layout(name: str, settings: Mapping[str, Any], dof_names: Sequence[str], points: Points) -> Layout:
    """Check a layout of the settings.

    Args:
        points: of a scan, where the layout has none of its own.

    Raises:
        UserError: an unknown key, part or joint.
    """
    where = f"layouts.{name}"
    if not isinstance(settings, Mapping):
        raise UserError(f"{where} must be a mapping with the keys {', '.join(_KEYS)}, got {settings}")
    for key in settings:
        if key not in _KEYS:
            raise UserError(
                f"{where}: unknown key '{key}'{near_matches(str(key), _KEYS)}; there are {', '.join(_KEYS)}"
            )
    parts = settings.get("parts", ())
    if not isinstance(parts, (list, tuple)):
        raise UserError(f"{where}.parts must be a list of {', '.join(PARTS)}, got {parts}")
    parts = tuple(parts)
    for part in parts:
        if part not in PARTS:
            choices = ", ".join(PARTS)
            raise UserError(
                f"{where}.parts: unknown part '{part}'{near_matches(str(part), PARTS)}; there are {choices}"
            )
    if not parts:
        raise UserError(f"{where}.parts is empty; there are {', '.join(PARTS)}")
    scales = settings.get("scales") or {}
    if not isinstance(scales, Mapping):
        raise UserError(f"{where}.scales must be a mapping of parts to factors, got {scales}")
    for part, scale in scales.items():
        if part not in parts:
            raise UserError(f"{where}.scales: '{part}' is not one of its parts, {', '.join(parts)}")
        several = scale if isinstance(scale, list) and part in VECTORS and len(scale) == 3 else [scale]
        if not all(map(_is_number, several)):
            raise UserError(f"{where}.scales.{part} must be a number, or three for vectors, got {scale}")
    if "scan" in settings:
        points = _own_points(where, settings["scan"])
    action_scale = settings.get("action_scale")
    if action_scale is not None and not (_is_number(action_scale) and action_scale > 0):
        raise UserError(f"{where}.action_scale must be a number over 0, rad, got {action_scale}")
    joints = joint_order(f"{where}.joints", settings.get("joints", "by_leg"), dof_names)
    widths = {**dict.fromkeys(VECTORS, 3), **dict.fromkeys(JOINTS, len(joints)), SCAN: len(points)}
    factors = tuple(_factor(scales.get(part, 1.0)) for part in parts)
    of_parts = tuple(widths[part] for part in parts)
    return Layout(name, parts, factors, joints, of_parts, points, None if action_scale is None else float(action_scale))


def _factor(scale: Any) -> float | tuple[float, ...]:
    return tuple(map(float, scale)) if isinstance(scale, list) else float(scale)


def _own_points(where: str, scan: Any) -> Points:
    numbers = [scan.get(axis) for axis in ("x", "y")] if isinstance(scan, Mapping) and len(scan) == 2 else []
    if not numbers or not all(isinstance(axis, list) and axis and all(map(_is_number, axis)) for axis in numbers):
        raise UserError(f"{where}.scan must have x and y, lists of numbers, m, got {scan}")
    xs, ys = ([float(value) for value in axis or ()] for axis in numbers)
    return grid_points(xs, ys)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def grid_points(xs: Sequence[float], ys: Sequence[float], order: str = "xy") -> Points:
    """Return all pairs of x and y; y varies fastest, or, with ``yx``, x."""
    if order == "yx":
        return tuple((x, y) for y in ys for x in xs)
    return tuple((x, y) for x in xs for y in ys)


def joint_order(where: str, order: Any, dof_names: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the policy's joints in ``dof_names``.

    ``by_leg`` is the order of ``dof_names``, in which the joints of a leg are together; ``by_kind`` has the first joint
    of all legs, then the second; a list has names.
    """
    count = len(dof_names)
    if order == "by_leg":
        return tuple(range(count))
    if order == "by_kind":
        of_leg = count // 4
        return tuple(leg * of_leg + joint for joint in range(of_leg) for leg in range(4))
    if not isinstance(order, (list, tuple)) or sorted(map(str, order)) != sorted(dof_names):
        choices = ", ".join(dof_names)
        raise UserError(f"{where} must be by_leg, by_kind or a list of all of {choices}, got {order}")
    return tuple(list(dof_names).index(name) for name in order)


def observe(layout: Layout, values: Mapping[str, Tensor]) -> Tensor:
    """Return the observation ``(n, width)`` from the values of its parts; joints in the simulator's order."""
    columns = []
    for part, scale in zip(layout.parts, layout.scales):
        value = values[part]
        if part in JOINTS and layout.joints != tuple(range(len(layout.joints))):
            value = torch.stack([value[:, j] for j in layout.joints], dim=1)
        if isinstance(scale, tuple):
            value = torch.stack([value[:, k] * factor for k, factor in enumerate(scale)], dim=1)
        elif scale != 1.0:
            value = value * scale
        columns.append(value)
    return torch.cat(columns, dim=1)
