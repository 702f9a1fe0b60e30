"""The robots of a grid."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import envcoder_bench
from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.grid.settings import JOINTS, SCAN, VECTORS, GridSettings, LayoutSettings

_TASKS = Path(envcoder_bench.__file__).parent / "tasks"


@dataclass(frozen=True)
class Robot:
    """A robot.

    Attributes:
        model: its MJCF file.
        dof_names: its joints in the model's order.
        stance: the angles where the action is 0, rad; empty if each policy brings its own, with gains and layout.
        height: height of the base in that stance on flat ground, m.
        tasks: this package's tasks with this robot.
        scratch: the folder of a converted model, which is removed with the robot.
    """

    name: str
    model: Path
    dof_names: tuple[str, ...]
    stance: tuple[float, ...] = ()
    height: float = 0.0
    tasks: tuple[str, ...] = ()
    scratch: Any = None


def _four_legs(
    name: str, model: Path, legs: Sequence[str], joints: Sequence[str], stance: Any, height: float, tasks: Any
) -> Robot:
    """Return a robot whose joints are ``<leg>_<joint>``, with the stance of each leg."""
    names = tuple(f"{leg}_{joint}" for leg in legs for joint in joints)
    return Robot(name, model, names, tuple(angle for leg in stance for angle in leg), height, tasks)


ROBOTS = {
    "spot": _four_legs(
        "spot",
        _TASKS / "spot_terrain" / "spot.xml",
        ("fl", "fr", "hl", "hr"),
        ("hx", "hy", "kn"),
        ((0.1, 0.9, -1.5), (-0.1, 0.9, -1.5), (0.1, 1.1, -1.5), (-0.1, 1.1, -1.5)),
        0.519,
        ("SpotTerrain",),
    ),
    "anymal_c": _four_legs(
        "anymal_c",
        _TASKS / "anymal" / "anymal_c.xml",
        ("LF", "LH", "RF", "RH"),
        ("HAA", "HFE", "KFE"),
        ((0.03, 0.4, -0.8), (0.03, -0.4, 0.8), (-0.03, 0.4, -0.8), (-0.03, -0.4, 0.8)),
        0.543,
        ("Anymal", "AnymalTerrain"),
    ),
}


def find_robot(name: str, settings: GridSettings) -> Robot:
    """Return a robot. Raises UserError for an unknown one, or for a model that cannot be used."""
    if name not in settings.robots:
        raise UserError(
            f"unknown robot '{name}'{near_matches(name, settings.robots)}; there are {', '.join(settings.robots)}, and"
            f" others with robots.{name}.model=FILE"
        )
    figures = settings.robots[name]
    if name in ROBOTS:
        if figures.model is not None or None in (figures.stiffness, figures.damping, figures.action_scale):
            raise UserError(
                f"robots.{name}: it has this package's model, and needs stiffness, damping and action_scale"
            )
        return ROBOTS[name]
    # the engine is imported where it is needed
    from envcoder_bench.sim.mujoco_model import load_robot
    from envcoder_bench.sim.robot_file import convert_file

    scratch = tempfile.TemporaryDirectory(prefix="envcoder_bench_robot_")
    model = Path(scratch.name) / "model.xml"
    file = figures.model or "mjlab's model"
    try:
        (_of_mjlab(name) if figures.model is None else convert_file(Path(figures.model), True, True)).write(model)
        robot = load_robot(model, settings.dt, settings.physics_hz // settings.control_hz)
    except (ValueError, NotImplementedError, OSError) as error:
        text = " ".join(str(error).replace(str(model), str(file)).split()).removeprefix(f"{file}: ")
        raise UserError(f"robots.{name}.model: {file}: {text}") from error
    passive = [joint for k, joint in enumerate(robot.dof_names) if k not in robot.actuated]
    if passive or robot.object_names:
        fault = f"the joint {passive[0]} has no actuator" if passive else "it has other objects"
        raise UserError(f"robots.{name}.model: {file}: {fault}; give an MJCF with actuators, or a URDF with efforts")
    return Robot(name, model, tuple(robot.dof_names), scratch=scratch)


def base_height_of(robot: Robot, stance: Sequence[float]) -> float:
    """Return the height of a robot's base in a stance on flat ground, m."""
    from envcoder_bench.sim.robot_file import base_height

    return base_height(robot.model, stance)


def _of_mjlab(name: str) -> Any:
    """Return mjlab's model of a robot. Raises UserError without it."""
    from envcoder_bench.sim.robot_file import convert

    remedy = f"give an MJCF or URDF file: robots.{name}.model=FILE"
    if name != "g1":
        raise UserError(f"robot {name}: {remedy}")
    try:
        from envcoder_bench.sources.mjlab_tasks.asset_zoo import unitree_g1
    except ImportError as error:
        raise UserError(f"robot {name}: its model is mjlab's, which is not installed; {remedy}") from error
    return convert(*unitree_g1(), True, True, {})


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
        histories: how many steps of each part it has, the oldest first; empty for one of each.
        clips: the range of each part's numbers before they are scaled; empty for none.
    """

    name: str
    parts: tuple[str, ...]
    scales: tuple[float | tuple[float, ...], ...]
    joints: tuple[int, ...]
    widths: tuple[int, ...]
    points: Points = ()
    action_scale: float | None = None
    histories: tuple[int, ...] = ()
    clips: tuple[tuple[float, float], ...] = ()

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


def observe(
    layout: Layout, values: Mapping[str, Tensor], past: Tensor | None = None, first: Tensor | None = None
) -> Tensor:
    """Return the observation ``(n, width)`` from the values of its parts; joints in the simulator's order.

    Args:
        past: the last observation ``(n, width)``, of a layout with histories.
        first: ``(n, 1)`` bool, where an episode begins: its first values fill the histories.
    """
    columns, start = [], 0
    for k, (part, scale) in enumerate(zip(layout.parts, layout.scales)):
        value = values[part]
        if part in JOINTS and layout.joints != tuple(range(len(layout.joints))):
            value = torch.stack([value[:, j] for j in layout.joints], dim=1)
        if layout.clips:
            value = value.clamp(*layout.clips[k])
        if isinstance(scale, tuple):
            value = torch.stack([value[:, k] * factor for k, factor in enumerate(scale)], dim=1)
        elif scale != 1.0:
            value = value * scale
        if layout.histories and layout.histories[k] > 1:
            assert past is not None and first is not None
            older = past[:, start + value.shape[1] : start + layout.widths[k]]
            value = torch.where(first, value.repeat(1, layout.histories[k]), torch.cat([older, value], dim=1))
        columns.append(value)
        start += layout.widths[k]
    return torch.cat(columns, dim=1)
