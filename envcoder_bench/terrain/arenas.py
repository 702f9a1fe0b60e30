"""Arenas: strips of zones along x, side by side on one ground, with a drag for each zone.

A zone is flat ground, stairs, or boulders. Flat zones and stairs are boxes, whose contacts MuJoCo computes directly;
thousands of boulders are one height field, because every robot is compared with every geom of the ground.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envcoder_bench.sim.ground import Box, Ground, HeightField

FLAT, STAIRS, BOULDERS = "flat", "stairs", "boulders"
TYPES = (FLAT, STAIRS, BOULDERS)
_DEPTH = 1.0  # m, of the ground's boxes below the lowest surface
_CELL = 0.05  # m, of the lookup of flat zones and stairs


@dataclass(frozen=True)
class Zone:
    """A strip of an arena.

    Attributes:
        type: of TYPES.
        size: length along x, m.
        difficulty: of stairs the riser, m, of boulders the smallest and the largest edge, m; empty for flat ground.
        friction: coefficient of its ground.
        drag: vx *= 1 / (1 + 0.1 drag) in each control step.
        count: number of boulders, or of risers; None for as many risers as fit.
        tread: depth of a stair, m.
        cell: spacing of boulders' height field, m.
    """

    type: str
    size: float = 10.0
    difficulty: tuple[float, ...] = ()
    friction: float = 0.8
    drag: float = 0.0
    count: int | None = None
    tread: float = 0.3
    cell: float = 0.05

    @property
    def rise(self) -> float:
        """Height of its end above its beginning, m."""
        return self.difficulty[0] * self.risers if self.type == STAIRS else 0.0

    @property
    def risers(self) -> int:
        """Number of risers of stairs."""
        fitting = int(self.size / self.tread + 1e-6)
        return fitting if self.count is None else min(self.count, fitting)


@dataclass(frozen=True)
class Arena:
    """Zones one after the other along x, from x = 0; y is 0 to ``width``.

    Attributes:
        apron: m, of flat ground before the first zone and after the last.
    """

    name: str
    zones: tuple[Zone, ...]
    width: float = 30.0
    apron: float = 3.0

    @property
    def starts(self) -> list[float]:
        """x of each zone's beginning, and of the arena's end, m."""
        return [0.0, *np.cumsum([zone.size for zone in self.zones]).tolist()]

    @property
    def length(self) -> float:
        """m."""
        return self.starts[-1]

    @property
    def bases(self) -> list[float]:
        """Height of each zone's beginning, and of the arena's end, m."""
        return [0.0, *np.cumsum([zone.rise for zone in self.zones]).tolist()]


def place_boulders(zone: Zone, width: float, seed: int) -> np.ndarray:
    """Draw the boulders of a zone: ``(count, 4)`` x, y, edge, m, and yaw, rad; x and y from the zone's corner.

    Boulders smaller than two cells of the height field lie on its nodes, so that none falls between them.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = generator.random((zone.count or 0, 4))
    low, high = zone.difficulty
    boulders = drawn * [zone.size, width, high - low, 0.5 * math.pi] + [0.0, 0.0, low, 0.0]
    if high < 2.0 * zone.cell:
        boulders[:, :2] = np.round(boulders[:, :2] / zone.cell) * zone.cell
    return boulders


def boulder_heights(boulders: np.ndarray, size: float, width: float, cell: float) -> np.ndarray:
    """Return heights ``(nx, ny)`` of cubes on the ground, m; the highest one counts where they overlap."""
    nx, ny = round(size / cell) + 1, round(width / cell) + 1
    heights = np.zeros((nx, ny), dtype=np.float32)
    for x, y, edge, yaw in boulders:
        reach = edge * math.sqrt(0.5)
        i0, i1 = max(0, math.ceil((x - reach) / cell)), min(nx - 1, math.floor((x + reach) / cell))
        j0, j1 = max(0, math.ceil((y - reach) / cell)), min(ny - 1, math.floor((y + reach) / cell))
        dx = (np.arange(i0, i1 + 1) * cell - x)[:, None]
        dy = (np.arange(j0, j1 + 1) * cell - y)[None, :]
        c, s = math.cos(yaw), math.sin(yaw)
        inside = (np.abs(c * dx + s * dy) <= 0.5 * edge) & (np.abs(c * dy - s * dx) <= 0.5 * edge)
        patch = heights[i0 : i1 + 1, j0 : j1 + 1]
        patch[inside] = np.maximum(patch[inside], np.float32(edge))
    return heights


class Arenas:
    """Arenas side by side in one world: arena k begins at y = k (width + gap) of the widest.

    Args:
        arenas: the arenas.
        seed: of the boulders.
        gap: m between arenas.

    Attributes:
        ground: all of them, for a simulator.
        offsets: y of each arena's corner, m.
    """

    def __init__(self, arenas: Sequence[Arena], seed: int = 0, gap: float = 10.0) -> None:
        self.arenas = tuple(arenas)
        pitch = max(arena.width for arena in arenas) + gap
        self.offsets = [k * pitch for k in range(len(arenas))]
        boxes: list[Box] = []
        fields: list[HeightField] = []
        self.tables: list[list[np.ndarray]] = []  # of each zone, aprons included: heights (nx, ny)
        self.spacings: list[list[float]] = []
        for k, (arena, y) in enumerate(zip(arenas, self.offsets)):
            builder = _Builder(arena, y, boxes, fields)
            for number in range(len(arena.zones)):
                builder.add(number, seed + 1000 * k + number)
            self.tables.append(builder.tables)
            self.spacings.append(builder.spacings)
        self.ground = Ground(tuple(fields), tuple(boxes))

    def middle(self, arena: int) -> float:
        """y of an arena's middle line in the world, m."""
        return self.offsets[arena] + 0.5 * self.arenas[arena].width


class _Builder:
    """Adds the zones of one arena to lists of boxes and height fields, and makes tables for lookups."""

    def __init__(self, arena: Arena, y: float, boxes: list[Box], fields: list[HeightField]) -> None:
        self._arena, self._y, self._boxes, self._fields = arena, y, boxes, fields
        self.tables: list[np.ndarray] = []
        self.spacings: list[float] = []

    def add(self, number: int, seed: int) -> None:
        arena, zone = self._arena, self._arena.zones[number]
        x, base = arena.starts[number], arena.bases[number]
        first, last = number == 0, number == len(arena.zones) - 1
        if first:
            self._box(-arena.apron, 0.0, base, zone.friction)
        if zone.type == BOULDERS:
            relief = boulder_heights(place_boulders(zone, arena.width, seed), zone.size, arena.width, zone.cell)
            field = HeightField(relief + np.float32(base), zone.cell, (x, self._y), zone.friction)
            self._fields.append(field)
            self._table(field.heights, zone.cell)
        elif zone.type == STAIRS:
            riser, tread = zone.difficulty[0], zone.tread
            self._box(x, x + tread, base, zone.friction)  # the first riser is a tread behind the zone's beginning
            for step in range(1, zone.risers + 1):
                end = x + (step + 1) * tread if step < zone.risers else x + zone.size
                self._box(x + step * tread, max(end, x + step * tread + 1e-3), base + step * riser, zone.friction)
            cells = np.arange(round(zone.size / _CELL))
            climbed = np.minimum(np.floor((cells + 0.5) * _CELL / tread), zone.risers)
            self._table((base + riser * climbed).astype(np.float32)[:, None], _CELL)
        else:
            self._box(x, x + zone.size, base, zone.friction)
            self._table(np.full((1, 1), base, dtype=np.float32), _CELL)
        if last:
            end = arena.bases[-1]
            self._box(arena.length, arena.length + arena.apron, end, zone.friction)
            self.tables.append(np.full((1, 1), end, dtype=np.float32))
            self.spacings.append(_CELL)

    def _table(self, heights: np.ndarray, spacing: float) -> None:
        self.tables.append(heights)
        self.spacings.append(spacing)

    def _box(self, x0: float, x1: float, top: float, friction: float) -> None:
        width, height = self._arena.width, top + _DEPTH
        center = (0.5 * (x0 + x1), self._y + 0.5 * width, top - 0.5 * height)
        self._boxes.append(Box(center, (x1 - x0, width, height), 0.0, friction))
