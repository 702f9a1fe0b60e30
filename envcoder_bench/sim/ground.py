"""The ground of a simulation as plain data: height fields and boxes instead of the plane of a robot's file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class HeightField:
    """A rectangle of ground as a grid of heights, parallel to the axes of the world.

    Each cell is two triangles, divided by the diagonal from the node with the lowest x and y.

    Attributes:
        heights: ``(nx, ny)`` float32, m; the first axis is x.
        spacing: distance of neighbouring nodes along x and y, m.
        corner: x and y of node ``[0, 0]``, m.
        friction: coefficient of its contacts, which replaces the robot's.
    """

    heights: np.ndarray
    spacing: float
    corner: tuple[float, float] = (0.0, 0.0)
    friction: float = 1.0

    def __post_init__(self) -> None:
        heights = np.asarray(self.heights, dtype=np.float32)
        if heights.ndim != 2 or min(heights.shape) < 2 or not np.isfinite(heights).all():
            raise ValueError(f"a height field needs finite heights, at least (2, 2), not {heights.shape}")
        _check_positive("a height field's spacing", self.spacing)
        _check_numbers("a height field's corner", self.corner, 2)
        _check_friction(self.friction)
        object.__setattr__(self, "heights", heights)

    @property
    def size(self) -> tuple[float, float]:
        """Extent along x and y, m."""
        nx, ny = self.heights.shape
        return (nx - 1) * self.spacing, (ny - 1) * self.spacing


@dataclass(frozen=True)
class Box:
    """A box that does not move.

    Attributes:
        center: x, y, z, m.
        size: full lengths of the edges, m.
        yaw: rotation about the vertical, rad.
        friction: coefficient of its contacts, which replaces the robot's.
    """

    center: tuple[float, float, float]
    size: tuple[float, float, float]
    yaw: float = 0.0
    friction: float = 1.0

    def __post_init__(self) -> None:
        _check_numbers("a box's center", self.center, 3)
        _check_numbers("a box's size", self.size, 3)
        for length in self.size:
            _check_positive("a box's edge", length)
        _check_numbers("a box's yaw", (self.yaw,), 1)
        _check_friction(self.friction)


@dataclass(frozen=True, eq=False)
class Ground:
    """The ground of all environments, instead of the plane of the robot's file.

    Fields of different friction lie side by side. The place of an environment on the ground is data: the position of
    its robot.
    """

    height_fields: tuple[HeightField, ...] = ()
    boxes: tuple[Box, ...] = ()

    def __post_init__(self) -> None:
        if not self.height_fields and not self.boxes:
            raise ValueError("a ground needs at least one height field or box")


def crop(ground: Ground, low: Sequence[float], high: Sequence[float], most_nodes: int) -> Ground | None:
    """Return the part of a ground within a rectangle, for pictures; None if it is empty.

    Args:
        low, high: x and y of the rectangle's corners, m.
        most_nodes: most nodes of a height field; a finer field is thinned out.
    """
    fields = [_crop_field(field, low, high, most_nodes) for field in ground.height_fields]
    kept = tuple(field for field in fields if field is not None)
    boxes = tuple(box for box in ground.boxes if _meets(box, low, high))
    return Ground(kept, boxes) if kept or boxes else None


def _crop_field(field: HeightField, low: Sequence[float], high: Sequence[float], most_nodes: int) -> HeightField | None:
    ranges = []
    for axis, count in enumerate(field.heights.shape):
        first = max(0, math.floor((low[axis] - field.corner[axis]) / field.spacing))
        last = min(count - 1, math.ceil((high[axis] - field.corner[axis]) / field.spacing))
        if last - first < 1:
            return None
        ranges.append((first, last))
    size = math.prod(last - first + 1 for first, last in ranges)
    step = max(1, math.ceil(math.sqrt(size / most_nodes)))
    step = min(step, *(last - first for first, last in ranges))
    (x0, x1), (y0, y1) = ranges
    corner = (field.corner[0] + x0 * field.spacing, field.corner[1] + y0 * field.spacing)
    return HeightField(field.heights[x0 : x1 + 1 : step, y0 : y1 + 1 : step], step * field.spacing, corner)


def _meets(box: Box, low: Sequence[float], high: Sequence[float]) -> bool:
    reach = 0.5 * math.hypot(box.size[0], box.size[1])
    return all(box.center[axis] + reach >= low[axis] and box.center[axis] - reach <= high[axis] for axis in (0, 1))


def _check_positive(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what} must be a positive number, not {value}")


def _check_numbers(what: str, values: tuple[float, ...], count: int) -> None:
    if len(values) != count or not all(math.isfinite(x) for x in values):
        raise ValueError(f"{what} must be {count} finite numbers, not {values}")


def _check_friction(friction: float) -> None:
    if not (math.isfinite(friction) and friction >= 0):
        raise ValueError(f"friction must be a number of at least 0, not {friction}")
