"""The ground of a simulation as plain data: height fields and boxes instead of the plane of a robot's file."""

from __future__ import annotations

import math
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
        friction: coefficient of its contacts, whatever the robot's is.
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
        friction: coefficient of its contacts, whatever the robot's is.
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
    """What all environments stand on, instead of the plane of the robot's file.

    Fields of different friction lie side by side. The place of an environment on the ground is data: the position of
    its robot.
    """

    height_fields: tuple[HeightField, ...] = ()
    boxes: tuple[Box, ...] = ()

    def __post_init__(self) -> None:
        if not self.height_fields and not self.boxes:
            raise ValueError("a ground needs at least one height field or box")


def _check_positive(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what} must be a positive number, not {value}")


def _check_numbers(what: str, values: tuple[float, ...], count: int) -> None:
    if len(values) != count or not all(math.isfinite(x) for x in values):
        raise ValueError(f"{what} must be {count} finite numbers, not {values}")


def _check_friction(friction: float) -> None:
    if not (math.isfinite(friction) and friction >= 0):
        raise ValueError(f"friction must be a number of at least 0, not {friction}")
