"""The robots of a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import envcoder_bench
from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.grid.settings import JOINTS, SCAN, VECTORS, LayoutSettings

_TASKS = Path(envcoder_bench.__file__).parent / "tasks"


@dataclass(frozen=True)
class Robot:
    """A robot.

    Attributes:
        model: its MJCF file.
        legs, joints: names of its legs and of a leg's joints; a joint is ``<leg>_<joint>``.
        stance: for each leg the angles where the action is 0, rad.
        height: height of the base in that stance on flat ground, m.
        tasks: this package's tasks with this robot.
    """

    name: str
    model: Path
    legs: tuple[str, ...]
    joints: tuple[str, ...]
    stance: tuple[tuple[float, ...], ...]
    height: float
    tasks: tuple[str, ...] = ()

    @property
    def dof_names(self) -> list[str]:
        """The joints in the model's order."""
        return [f"{leg}_{joint}" for leg in self.legs for joint in self.joints]


ROBOTS = {
    "spot": Robot(
        "spot",
        _TASKS / "spot_terrain" / "spot.xml",
        ("fl", "fr", "hl", "hr"),
        ("hx", "hy", "kn"),
        ((0.1, 0.9, -1.5), (-0.1, 0.9, -1.5), (0.1, 1.1, -1.5), (-0.1, 1.1, -1.5)),
        0.519,
        ("SpotTerrain",),
    ),
    "anymal_c": Robot(
        "anymal_c",
        _TASKS / "anymal" / "anymal_c.xml",
        ("LF", "LH", "RF", "RH"),
        ("HAA", "HFE", "KFE"),
        ((0.03, 0.4, -0.8), (0.03, -0.4, 0.8), (-0.03, 0.4, -0.8), (-0.03, -0.4, 0.8)),
        0.543,
        ("Anymal", "AnymalTerrain"),
    ),
}


def find_robot(name: str) -> Robot:
    """Return a robot. Raises UserError with near matches."""
    if name not in ROBOTS:
        raise UserError(f"unknown robot '{name}'{near_matches(name, ROBOTS)}; there are {', '.join(ROBOTS)}")
    return ROBOTS[name]


# layouts


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Layout:
    """The observation of a policy.

    Attributes:
        parts: in the order of the columns.
        scales: the factor of each part, or of each of its columns.
        joints: the simulator's indices of the policy's joints, in the policy's order; also the order of actions.
        widths: columns of each part.
        points: x and y of the scan's points in the base's frame, m.
        action_scale: joint target = stance + action_scale * action, rad; None for the scale of the run or the robot.
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


def read_layout(name: str, settings: LayoutSettings, dof_names: Sequence[str], points: Points) -> Layout:
    """Read a layout of the settings for a robot's joints.

    Args:
        points: points of the height scan, if the layout does not define its own.

    Raises:
        UserError: an unknown joint.
    """
    if settings.scan is not None:
        points = grid_points(settings.scan.x, settings.scan.y)
    joints = joint_order(f"layouts.{name}.joints", settings.joints, dof_names)
    widths = {**dict.fromkeys(VECTORS, 3), **dict.fromkeys(JOINTS, len(joints)), SCAN: len(points)}
    factors = tuple(_factor(settings.scales.get(part, 1.0)) for part in settings.parts)
    of_parts = tuple(widths[part] for part in settings.parts)
    scale = None if settings.action_scale is None else float(settings.action_scale)
    return Layout(name, settings.parts, factors, joints, of_parts, points, scale)


def _factor(scale: float | tuple[float, ...]) -> float | tuple[float, ...]:
    return tuple(map(float, scale)) if isinstance(scale, tuple) else float(scale)


def grid_points(xs: Sequence[float], ys: Sequence[float], order: str = "xy") -> Points:
    """Return all pairs of x and y; y varies fastest, or, with ``yx``, x."""
    if order == "yx":
        return tuple((float(x), float(y)) for y in ys for x in xs)
    return tuple((float(x), float(y)) for x in xs for y in ys)


def joint_order(where: str, order: Any, dof_names: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the policy's joints in ``dof_names``.

    ``by_leg`` is the order of ``dof_names``, in which the joints of a leg are together; ``by_kind`` has the first joint
    of all legs, then the second; a list has names.
    """
    count = len(dof_names)
    if order == "by_leg":
        return tuple(range(count))
    if order == "by_kind":
        # all legs have the same joints in the same order
        joints_per_leg = count // 4
        return tuple(leg * joints_per_leg + joint for joint in range(joints_per_leg) for leg in range(4))
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
